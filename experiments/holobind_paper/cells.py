"""Tables made of cells (a dataset, a model, a seed): a cell that is finished stays on disk and is not run again.

A cell is its key, a flat dictionary of everything its numbers follow from, and a function that computes them. The
file OUT/cells/EXPERIMENT/....json holds both. To run a cell again, delete its file.
"""

import json
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holobind_paper import result

Key = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """`key` says what it is, `compute` gives its numbers: a dictionary that JSON can hold."""

    key: Key
    compute: Callable[[], dict[str, Any]]

    @property
    def title(self) -> str:
        return " ".join(str(value) for name, value in self.key.items() if name in ("dataset", "model", "labels"))


def finish(out: Path, experiment: str, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The numbers of every cell with its key and the seconds it took, in order; only what is not there is computed.

    A file that cannot be read, or is of another key, is said to be damaged, and computed again. What was finished
    before an interruption stays.
    """
    place = result.folder(out / "cells" / experiment)
    rows = []
    with result.progress(experiment, len(cells)) as advance:
        for cell in cells:
            advance(0, cell.title)
            path = place / _file_name(cell.key)
            kept = _kept(path, cell.key)
            if kept is None:
                started = time.monotonic()
                numbers = cell.compute()
                took = time.monotonic() - started
                result.write_json(path, {"key": dict(cell.key), "numbers": numbers, "seconds": took})
                kept = json.loads(path.read_text())  # so that a table is the same whether its cells are new or kept
            rows.append({**kept["key"], **kept["numbers"], "cell_seconds": kept["seconds"]})
            advance()
    return rows


def seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    """What all cells took, whenever they were run."""
    return round(sum(row["cell_seconds"] for row in rows), 1)


def _kept(path: Path, key: Key) -> dict[str, Any] | None:
    """What the file holds, None if there is none that makes sense."""
    try:
        kept = json.loads(path.read_text())
        if kept["key"] == dict(key) and isinstance(kept["numbers"], dict) and kept["seconds"] >= 0:
            return dict(kept)
        wrong = "it is not of this cell"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        wrong = f"{type(error).__name__}: {error}"
    result.say(f"{path} is damaged ({wrong}); the cell is run again")
    return None


def _file_name(key: Key) -> str:
    """Words to find it by, and a sum over the whole key, so that no two cells share a file."""
    words = "-".join(str(value) for value in key.values() if isinstance(value, str | int))
    words = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")[:80]
    return f"{words}-{zlib.crc32(repr(sorted(key.items())).encode()):08x}.json"
