"""The numbers of the paper (Ganesan et al. 2021), read off its figures and tables."""

import csv
from importlib.resources import files


def read(name: str) -> list[dict[str, str]]:
    """The rows of `published/NAME.csv`."""
    text = (files("holobind_paper") / "published" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))
