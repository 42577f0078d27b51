"""Input and output of the command line: a progress bar on stderr, results on stdout as JSON or as a table."""

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holobind._files import check_outputs, exclusive, lock_path

if TYPE_CHECKING:
    import rich.progress

    from holobind._types import ProgressCallback

PROGRESS_DELAY_SECONDS = 2.0  # quick commands show no progress bar


@contextmanager
def progress() -> Iterator["ProgressCallback"]:
    """Show a progress bar on stderr; yield the function that updates it.

    The function takes a description of the current step and the finished fraction of that step; a fraction of 0 shows
    a bar without an end. The bar appears after `PROGRESS_DELAY_SECONDS`, and only on a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or not first_process(),
    )
    task = bar.add_task("working", total=None)

    def report(description: str, fraction: float) -> None:
        bar.update(task, description=description, total=1.0 if fraction else None, completed=fraction)

    with delayed(bar):
        yield report


@contextmanager
def delayed(bar: "rich.progress.Progress") -> Iterator[None]:
    """Start a progress bar after `PROGRESS_DELAY_SECONDS`, if the work inside the `with` takes that long."""
    timer = threading.Timer(PROGRESS_DELAY_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(json.dumps(value))


def print_rich(value: Any) -> None:
    """Print a table or a text. A terminal limits the width of a table; a file or a pipe gets 200 columns."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(value, highlight=False, markup=False, soft_wrap=isinstance(value, str))


def first_process() -> bool:
    """Whether this process has rank 0 among those that torchrun started. Only rank 0 prints and writes files."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def claim_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | int] = ()) -> Iterator[None]:
    """Check the output files of a command before its work starts, and lock the first one against other runs.

    outputs   from an option to its path, or None where it was not given
    inputs    files that no output may replace: paths, or numbers of open files

    Of the processes that torchrun started only rank 0, which writes the files, locks.
    """
    first = next(iter(outputs.values()))
    check_outputs({**outputs, "the lock": None if first is None else lock_path(first)}, inputs)
    with exclusive(first) if first is not None and first_process() else nullcontext():
        yield


def interrupted(message: str) -> typer.Exit:
    """Print a message to stderr; return the exception that ends a command after Ctrl-C, with exit code 130."""
    if first_process():
        typer.echo(f"holobind: {message}", err=True)
    return typer.Exit(130)
