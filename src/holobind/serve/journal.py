"""Corrections, kept in an append-only file for each model: a crash loses none that was accepted.

A line is JSON: {"time", "version", "text" or "features", "labels", "rejected"}. `holobind train` reads such a file.
A line is on the disk before its request is answered. A line that a crash has cut off is not part of the journal: the
next one starts on a line of its own.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holobind._files import write_errors


class Journal:
    """Files of corrections in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        with write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)

    def path(self, model: str) -> Path:
        return self.directory / f"{model}.jsonl"

    def add(self, model: str, version: str, documents: Sequence[dict[str, Any]]) -> None:
        """Add documents; they are on the disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [json.dumps({"time": now, "version": version, **document}) + "\n" for document in documents]
        path = self.path(model)
        with self._lock, write_errors(path), path.open("ab+") as file:
            content = "".join(lines).encode()
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                content = content if file.read(1) == b"\n" else b"\n" + content
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def read(self, model: str) -> Iterator[dict[str, Any]]:
        """All whole documents of a model, the oldest first."""
        path = self.path(model)
        if not path.exists():
            return
        with path.open("rb") as file:
            for line in file:
                try:
                    document = json.loads(line)
                except ValueError:
                    continue  # cut off by a crash
                if isinstance(document, dict) and "labels" in document and line.endswith(b"\n"):
                    yield document
