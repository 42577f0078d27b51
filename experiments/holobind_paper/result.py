"""The files of an experiment: NAME.json with its numbers, and NAME.png where it has a figure.

The JSON file of a table also has `table` (column titles, then rows of text), `summary` (one line) and `notes`
(paragraphs). The terminal and docs/reproduction.md show these three.
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

from holobind.cli.terminal import delayed
from holobind.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECIMALS = 6  # of the numbers in result files
NOT_RUN = "not run yet"  # of a cell or a claim without a result


def generator(seed: int, *cell: object) -> torch.Generator:
    """A random generator for one cell of an experiment, independent of which other cells run and of their order."""
    return torch.Generator().manual_seed(zlib.crc32(repr((seed, *cell)).encode()))


def make_folder(out: Path) -> Path:
    """Create the folder `out`, or raise before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {out} cannot be made a folder ({error.strerror}); name another place") from error
    if not os.access(out, os.W_OK):
        raise OptionError(f"--out {out} is a folder that cannot be written to; name another place")
    return out


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr if the work takes longer than two seconds.

    Call the yielded function after each step. `advance(0, "text")` shows what is being done without a step.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Progress(*columns, *times, console=Console(stderr=True))
    task = bar.add_task(description, total=total)

    def advance(steps: int = 1, current: str = "") -> None:
        bar.update(task, advance=steps, description=f"{description}: {current}" if current else description)

    with delayed(bar):
        yield advance


def notify(text: str) -> None:
    """Print a message that is not a result to stderr."""
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def machine() -> str:
    """The machine on which times were measured."""
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def save(out: Path, name: str, figure: "Figure | None", started: float, **numbers: Any) -> dict[str, Any]:
    """Write NAME.json and NAME.png, with the command that makes them. Each file is written completely or not at all."""
    header = {
        "experiment": name,
        "command": command(name, numbers["seed"], numbers["quick"]),
        "seconds": round(time.monotonic() - started, 1),
        "machine": machine(),
    }
    data = header | numbers
    if figure is not None:
        save_figure(out, name, figure)
    write_json(out / f"{name}.json", data)
    return data


def save_figure(out: Path, name: str, figure: "Figure") -> None:
    """Write NAME.png completely or not at all."""
    unfinished = out / f"{name}.png.part"
    figure.savefig(unfinished, format="png", dpi=150)
    unfinished.replace(out / f"{name}.png")


def command(name: str, seed: int, quick: bool) -> str:
    """The command line that computes a result."""
    return f"holobind paper {name} --seed {seed}" + " --quick" * quick


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file completely or not at all."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(rounded(value), indent=1))
    unfinished.replace(path)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """A table as the JSON file stores it: the column titles, then the rows, every cell as text."""
    return [[str(cell) for cell in line] for line in (header, *rows)]


def markdown(lines: Sequence[Sequence[object]]) -> str:
    """A table of `table` as Markdown."""
    header, *rows = lines
    ruled: list[Sequence[object]] = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in ruled)


def print_result(data: dict[str, Any]) -> None:
    """Print the table, the notes and the summary of a result to stdout."""
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


def rounded(value: Any) -> Any:
    """`value` with six decimals: smaller differences are noise in a diff."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
