"""The command ``dse``, and ``python -m dse``."""


def main() -> None:
    """Have signals end the process in good order, before anything else is imported; then do what is asked."""
    from dse.interruption import arm

    arm()
    from dse.cli import main as command

    command()


if __name__ == "__main__":
    main()
