"""The command ``dse``, and ``python -m dse``."""


def main() -> None:
    """Have signals end the process in good order, before anything else is imported; then do what is asked."""
    import gc

    from dse.io.interruption import arm

    arm()
    gc.set_threshold(50_000, 20, 100)  # modules and traces are many objects and no garbage
    from dse.cli import main as command

    command()


if __name__ == "__main__":
    main()
