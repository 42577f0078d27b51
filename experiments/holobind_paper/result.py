"""What every experiment leaves behind: NAME.json with its numbers and NAME.png with its picture."""

import json
import os
import platform
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from holobind.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def generator(seed: int, *cell: object) -> torch.Generator:
    """A generator for one cell of an experiment: the same whichever other cells are run, and in any order."""
    return torch.Generator().manual_seed(zlib.crc32(repr((seed, *cell)).encode()))


def folder(out: Path) -> Path:
    """`out` as a folder that exists, made before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {out} cannot be made a folder ({error.strerror}); name another place") from error
    if not os.access(out, os.W_OK):
        raise OptionError(f"--out {out} is a folder that cannot be written to; name another place")
    return out


@contextmanager
def progress(description: str, total: int) -> Iterator[Any]:
    """A progress bar on stderr; call what it yields after each step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)


def save(out: Path, name: str, figure: "Figure", started: float, **numbers: Any) -> dict[str, Any]:
    """Write the picture and the numbers, with what is needed to get them again; both files or their old versions."""
    about = {
        "experiment": name,
        "command": f"holobind paper {name} --seed {numbers['seed']}" + " --quick" * numbers["quick"],
        "seconds": round(time.monotonic() - started, 1),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }
    data = about | numbers
    picture, text = out / f"{name}.png", out / f"{name}.json"
    new_picture, new_text = out / f"{name}.png.part", out / f"{name}.json.part"
    figure.savefig(new_picture, format="png", dpi=150)
    new_text.write_text(json.dumps(_rounded(data), indent=1))
    new_picture.replace(picture)
    new_text.replace(text)
    return data


def _rounded(value: Any) -> Any:
    """The same with six digits after the point: what differs beyond them is not worth a line in a diff."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value
