"""`python -m fedhk` is the command line, also where the folder of the command is not on the path."""

from fedhk.cli import main

if __name__ == "__main__":
    main()
