"""Peak memory of one function, measured in a process of its own; shared by benchmarks."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def run_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a function that runs in a new process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def peak_memory_mb() -> float:
    """Peak resident memory of this process, in megabytes. (ru_maxrss would include that of the parent process.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
