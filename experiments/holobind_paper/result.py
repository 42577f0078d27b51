"""What every experiment leaves behind: NAME.json with its numbers, and NAME.png where a picture says more.

A table is in the JSON too, as `table` (the heads of its columns, then rows of text), beside `summary`, one line, and
`notes`, paragraphs that its numbers make: the terminal and docs/reproduction.md show those.
"""

import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from holobind.cli.terminal import patiently
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
def progress(description: str, total: int) -> Iterator[Callable[..., None]]:
    """A bar on stderr if it takes longer than two seconds; call what it yields after each step.

    `advance(0, "text")` only says what is being done now.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Progress(*columns, *times, console=Console(stderr=True))
    task = bar.add_task(description, total=total)

    def advance(steps: int = 1, now: str = "") -> None:
        bar.update(task, advance=steps, description=f"{description}: {now}" if now else description)

    with patiently(bar):
        yield advance


def say(text: str) -> None:
    """A word to the user that is not a result."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def machine() -> str:
    """Where numbers that are times were measured."""
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def save(out: Path, name: str, figure: "Figure | None", started: float, **numbers: Any) -> dict[str, Any]:
    """Write the picture and the numbers, with what is needed to get them again; each file whole or not at all."""
    about = {
        "experiment": name,
        "command": command(name, numbers["seed"], numbers["quick"]),
        "seconds": round(time.monotonic() - started, 1),
        "machine": machine(),
    }
    data = about | numbers
    if figure is not None:
        picture = out / f"{name}.png.part"
        figure.savefig(picture, format="png", dpi=150)
        picture.replace(out / f"{name}.png")
    write_json(out / f"{name}.json", data)
    return data


def command(name: str, seed: int, quick: bool) -> str:
    """What to type to get a result again."""
    return f"holobind paper {name} --seed {seed}" + " --quick" * quick


def write_json(path: Path, value: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(_rounded(value), indent=1))
    part.replace(path)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """A table as the JSON keeps it: the heads of the columns, then the rows, all of them text."""
    return [[str(cell) for cell in line] for line in (header, *rows)]


def markdown(lines: Sequence[Sequence[object]]) -> str:
    """A table of `table` as Markdown."""
    header, *rows = lines
    ruled: list[Sequence[object]] = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in ruled)


def show(data: dict[str, Any]) -> None:
    """The table, the notes and the summary of a result on stdout."""
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    if "table" in data:
        header, *rows = data["table"]
        shown = Table(*header)
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for text in (*data.get("notes", ()), data.get("summary", "")):
        if text:
            console.print(text, markup=False, highlight=False)


def _rounded(value: Any) -> Any:
    """The same with six digits after the point: what differs beyond them is not worth a line in a diff."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
