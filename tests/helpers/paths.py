"""Where files outside the project are."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def real_data():
    """The folder of the real datasets: HOLOBIND_DATA, or ../shared/data relative to the project."""
    return Path(os.environ.get("HOLOBIND_DATA") or PROJECT.parent / "shared" / "data")
