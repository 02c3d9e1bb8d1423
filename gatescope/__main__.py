"""`python -m gatescope` is the command `gatescope`."""

from .cli import main

if __name__ == "__main__":
    main()
