"""Input and output of the command line: progress on stderr, results on stdout as JSON or as a table."""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holobind._files import check_outputs, exclusive, lock_path

if TYPE_CHECKING:
    import rich.console
    import rich.progress

    from holobind._types import ProgressCallback

PROGRESS_DELAY_SECONDS = 2.0  # quick commands show no progress bar
PROGRESS_LINE_SECONDS = 5.0  # between lines where there is no terminal
_settings = {"quiet": False}


def set_quiet(quiet: bool) -> bool:
    """Set whether `progress` shows nothing: the callback of --quiet."""
    _settings["quiet"] = quiet
    return quiet


@contextmanager
def progress() -> Iterator["ProgressCallback"]:
    """Show progress on stderr; yield the function that updates it.

    The function takes a description of the current step and the finished fraction of that step; a fraction of 0 means
    that it is not known. A terminal gets a bar, after `PROGRESS_DELAY_SECONDS`; a file or a pipe gets a line every
    `PROGRESS_LINE_SECONDS`. With --quiet there is neither.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if _settings["quiet"] or not first_process():
        yield lambda description, fraction: None
    elif not console.is_terminal:
        yield _LineReport()
    else:
        with _bar(console) as report:
            yield report


class _LineReport:
    """Prints the current step to stderr, a line every `PROGRESS_LINE_SECONDS`."""

    def __init__(self) -> None:
        self.began = self.printed = time.monotonic()

    def __call__(self, description: str, fraction: float) -> None:
        now = time.monotonic()
        if now - self.printed < PROGRESS_LINE_SECONDS:
            return
        self.printed = now
        done = f" {fraction:.0%}" if fraction else ""
        typer.echo(f"holobind: {now - self.began:.0f} s: {description}{done}", err=True)


@contextmanager
def _bar(console: "rich.console.Console") -> Iterator["ProgressCallback"]:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=console, transient=True)
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


def several_processes() -> bool:
    """Whether torchrun started this process with others."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


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
