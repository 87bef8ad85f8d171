"""``python -m lstmprof``: the same as the command ``lstmprof``."""

from lstmprof.cli import main

if __name__ == "__main__":
    main()
