"""What benchmarks share to measure the memory of one thing and not of what was there before it."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def alone(measure: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def high_water() -> float:
    """The most megabytes that this process has had in memory. ru_maxrss would begin with those of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
