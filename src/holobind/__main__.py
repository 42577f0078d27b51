"""`python -m holobind` runs the command line `holobind`."""

from holobind.cli.main import main

if __name__ == "__main__":
    main()
