"""`python -m holobind` is `holobind`."""

from holobind.cli import main

if __name__ == "__main__":
    main()
