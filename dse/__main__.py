"""``python -m dse``: the same as the command ``dse``."""

from dse.cli import main

if __name__ == "__main__":
    main()
