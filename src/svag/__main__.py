"""`python -m svag` is the command line (torchrun starts it this way)."""

from svag.cli import main

if __name__ == "__main__":
    main()
