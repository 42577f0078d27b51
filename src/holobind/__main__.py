"""`python -m holobind` is `holobind`."""

from holobind.cli.main import main

if __name__ == "__main__":
    main()
