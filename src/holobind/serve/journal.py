"""Corrections, kept in an append-only file for each model: a crash loses none that was accepted.

A line is JSON: {"time", "version", "base", "text" or "features", "labels", "rejected"}. `holobind train` reads such
files. A line is on the disk before its request is answered. A line that a crash has cut off is not part of the journal:
the next one starts on a line of its own.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holobind._files import write_errors

MAX_READ_BYTES = 1 << 25  # of a journal at a time, and the rest of a line


class Journal:
    """Files of corrections in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        with write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)

    def path(self, model: str) -> Path:
        return self.directory / f"{model}.jsonl"

    def size(self, model: str) -> int:
        """Bytes of the journal of a model."""
        path = self.path(model)
        return path.stat().st_size if path.exists() else 0

    def add(self, model: str, version: str, base: str, documents: Sequence[dict[str, Any]]) -> int:
        """Add documents; they are on the disk when this returns. The size of the journal with them.

        version, base   of the model that was asked, and of the model file that it comes from
        """
        about = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "version": version, "base": base}
        content = "".join(json.dumps({**about, **document}) + "\n" for document in documents).encode()
        path = self.path(model)
        with self._lock, write_errors(path), path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                content = content if file.read(1) == b"\n" else b"\n" + content
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def read_from(self, model: str, position: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The next whole documents after a position, about as many as a limit says, and the position after them."""
        found: list[dict[str, Any]] = []
        path = self.path(model)
        if not path.exists():
            return found, position
        with path.open("rb") as file:
            file.seek(position)
            first = position
            while len(found) < limit and position - first < MAX_READ_BYTES:
                line = file.readline()
                if not line.endswith(b"\n"):  # the end, or a line that is being written or was cut off by a crash
                    break
                position += len(line)
                try:
                    document = json.loads(line)
                except ValueError:
                    continue  # cut off by a crash
                if isinstance(document, dict) and isinstance(document.get("labels"), list):
                    found.append(document)
        return found, position

    def read(self, model: str) -> Iterator[dict[str, Any]]:
        """All whole documents of a model, the oldest first."""
        position = 0
        while True:
            found, after = self.read_from(model, position, 1024)
            if after == position:
                return
            yield from found
            position = after
