"""The command ``dse``, and ``python -m dse``."""


def main() -> None:
    """Run the command ``dse`` with the arguments of the process.

    Signals end the process in good order from here on, before any slow import.
    """
    import gc
    import os
    import sys

    if sys.stdout is None or sys.stderr is None:  # closed (`>&-`): no file that is written may take their numbers
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
        nowhere = open(os.devnull, "w")  # noqa: SIM115 (until the end)
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    os.environ.pop("MPLBACKEND", None)  # of windows, which no figure has; matplotlib ends at a name that it lacks
    from dse.io.interruption import arm

    arm()
    gc.set_threshold(50_000, 20, 100)  # modules and traces are many objects and no garbage
    from dse.cli import main as command

    command()


if __name__ == "__main__":
    main()
