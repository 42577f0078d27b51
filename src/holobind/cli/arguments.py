"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="Directory, file, or name of a fetched dataset.", show_default=False),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `holobind train`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
