"""What verbs share: options, a bar on stderr, results on stdout as JSON or as a table."""

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.errors import FileError

if TYPE_CHECKING:
    import rich.progress

    from holobind._types import ProgressCallback

PATIENCE = 2.0  # seconds before a bar appears

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@contextmanager
def progress() -> Iterator["ProgressCallback"]:
    """A bar on stderr that appears when the work takes longer than `PATIENCE`: call it with what is done, and how
    much of that."""
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

    def tell(what: str, share: float) -> None:
        bar.update(task, description=what, total=1.0 if share else None, completed=share)

    with patiently(bar):
        yield tell


@contextmanager
def patiently(bar: "rich.progress.Progress") -> Iterator[None]:
    """Show a bar that appears when the work takes longer than `PATIENCE`."""
    timer = threading.Timer(PATIENCE, bar.start)
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
    typer.echo(json.dumps(value))


def print_rich(value: Any) -> None:
    """A table, or text with a place for every word: on a terminal as wide as it is, in a file as wide as need be."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(value, highlight=False, markup=False, soft_wrap=isinstance(value, str))


def first_process() -> bool:
    """Whether this is the process that speaks and writes, of those that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work is done that is to be written."""
    if path.is_dir():
        raise FileError(f"{path} is a directory; give the name of a file")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error}); name another place") from error
