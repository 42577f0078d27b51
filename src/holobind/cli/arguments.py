"""Arguments and options that several verbs share."""

import re
from pathlib import Path
from typing import Annotated

import typer

from holobind.cli.terminal import set_quiet

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="Directory, file, or name of a fetched dataset.", show_default=False),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `holobind train`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.", callback=set_quiet, show_default=False)
]
BYTE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def byte_size(text: str) -> int:
    """A number of bytes from a text like 500MB or 20GB."""
    match = re.fullmatch(r"([0-9]{1,9})([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text[:40]!r} is not a size; write it like 500MB or 20GB")
    return int(match[1]) * BYTE_UNITS[match[2]]


MaxUncompressed = Annotated[
    int | None,
    typer.Option(
        "--max-uncompressed",
        parser=byte_size,
        metavar="SIZE",
        help="What a compressed input may expand to, like 20GB.  \\[default: 100 times its size, at least 64 MB]",
        show_default=False,
    ),
]
