"""Tables made of cells, one cell for each dataset, model and seed. A finished cell is stored and not computed again.

A cell has a key, a dictionary of everything its result depends on, and a function that computes the result. The file
OUT/TABLE.jsonl has one line for each finished cell:

    {"key": {"dataset": ..., "seed": ..., ...}, "result": {...}, "seconds": ..., "machine": ...}

The key of a trained network has its settings and the versions of the code paths it uses, so that a cell of an older
version is computed again. To compute any other cell again, delete its line.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holobind_paper import result

Key = Mapping[str, Any]
TITLE_FIELDS = ("dataset", "model", "labels")


@dataclass(frozen=True)
class Cell:
    """One cell: `compute` returns its result, a dictionary that JSON can hold.

    needs   fields of the result; a finished cell without them is computed again
    """

    key: Key
    compute: Callable[[], dict[str, Any]]
    needs: tuple[str, ...] = ()

    def is_finished(self, stored: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a stored cell has this key and everything that is needed."""
        found = stored.get(identity(self.key))
        return found is not None and all(name in found["result"] for name in self.needs)

    @property
    def title(self) -> str:
        return " ".join(str(self.key[name]) for name in TITLE_FIELDS if name in self.key)


def finish(out: Path, table: str, cells: Sequence[Cell], shared_with: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Compute the cells that are not finished; return the keys, results and seconds of all cells, in order.

    Each new cell is appended to OUT/TABLE.jsonl as soon as it is computed, so that an interrupted run continues.
    `shared_with` names tables whose finished cells are used where the table has none of its own. A damaged line is
    reported and its cell computed again.
    """
    path = result.make_folder(out) / f"{table}.jsonl"
    finished: dict[str, dict[str, Any]] = {}
    for name in (*(name for name in shared_with if name != table), table):
        finished |= read(out / f"{name}.jsonl")
    rows = []
    with result.progress(table, len(cells)) as advance:
        for cell in cells:
            advance(0, cell.title)
            if not cell.is_finished(finished):
                started = time.monotonic()
                found = cell.compute()
                seconds = time.monotonic() - started
                line = {"key": dict(cell.key), **result.rounded({"result": found, "seconds": seconds})}
                line["machine"] = result.machine()
                text = json.dumps(line)
                _append(path, text)
                finished[identity(cell.key)] = json.loads(text)  # the same values as in a later run that reads the file
            stored = finished[identity(cell.key)]
            rows.append({**stored["key"], **stored["result"], "cell_seconds": stored["seconds"]})
            advance()
    return rows


def seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    """Computing time of all cells together, in whichever run each of them was computed."""
    return round(sum(row["cell_seconds"] for row in rows), 1)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The finished cells of a JSONL file by the identity of their key; a damaged line is reported and skipped."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    finished = {}
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        try:
            cell = _parse(line)
        except (ValueError, TypeError, KeyError) as error:
            if line.endswith(b"\n"):  # else the write was interrupted, and `_append` removes the line
                result.notify(f"{path}, line {number} is damaged ({error}); its cell is computed again")
            continue
        finished[identity(cell["key"])] = cell
    return finished


def _parse(line: bytes) -> dict[str, Any]:
    cell = json.loads(line)
    if not (isinstance(cell["key"], dict) and isinstance(cell["result"], dict) and cell["seconds"] >= 0):
        raise ValueError("it has no key, result and seconds")
    return dict(cell)


def _append(path: Path, text: str) -> None:
    """Append one line after the last complete line: the rest of an interrupted write is removed."""
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        complete = content.rfind(b"\n") + 1
        ending = b""
        if complete < len(content):
            try:
                _parse(content[complete:])
                ending = b"\n"
            except (ValueError, TypeError, KeyError):
                file.truncate(complete)
        file.write(ending + text.encode() + b"\n")
        file.flush()


def identity(key: Key) -> str:
    """The key as text, the same for any order of its fields."""
    return json.dumps(key, sort_keys=True)
