"""The models that are served: each has an id, a file, and the model that was last read from it.

A request keeps the version it started with. A file that cannot be read leaves the version before in service.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from holobind.errors import OptionError
from holobind.model import Model, load

ID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]+")
SUFFIX = ".safetensors"
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Version:
    """A model as it was read from its file."""

    id: str
    model: Model
    digest: str
    modified: datetime
    size: int

    @cached_property
    def search_names(self) -> list[str]:
        """The names of the labels as the search compares them."""
        return [str(name).casefold() for name in self.names]

    @property
    def names(self) -> Sequence[str | int]:
        names = self.model.label_names
        return range(self.model.n_labels) if names is None else names

    @property
    def learned_documents(self) -> int:
        """Documents of the journal that the model has learned; a file may say anything."""
        learned = self.model.metadata.get("learned")
        count = learned.get("documents") if isinstance(learned, dict) else 0
        return count if type(count) is int else 0

    def search(self, query: str, limit: int) -> list[str | int]:
        """Labels whose name has a text: first those that are it, then those that start with it, then the others."""
        query = query.casefold()
        found: tuple[list[int], list[int], list[int]] = ([], [], [])
        for i, name in enumerate(self.search_names):
            if query in name:
                found[0 if name == query else 1 if name.startswith(query) else 2].append(i)
                if len(found[1]) >= limit:
                    break
        return [self.names[i] for i in (*found[0], *found[1], *found[2])][:limit]

    def describe(self) -> dict[str, Any]:
        """What `GET /v1/models/{id}` says."""
        model = self.model
        return {
            "id": self.id,
            "version": self.digest[:16],
            "labels": model.n_labels,
            "reads": "texts" if model.reads_texts else "features",
            "features": model.network.n_features,
            "probabilities": model.calibration is not None,
            "label_names": model.label_names is not None,
            "training_rows": int(model.frequencies.n_rows),
            "learns": model.can_learn_on,
            "learned_documents": self.learned_documents,
            "modified": self.modified.isoformat(timespec="seconds"),
            "bytes": self.size,
        }


@dataclass
class Served:
    """A file and its current version."""

    id: str
    path: Path
    current: Version

    def read(self) -> Version:
        """The model that its file has now; a FileError if it has none."""
        return read_version(self.id, self.path)


class Registry:
    """Served models by their ids."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._served: dict[str, Served] = {}
        for path in paths:
            name = model_id(path)
            if name in self._served:
                first = self._served[name].path
                raise OptionError(f"{first} and {path} would both have the id {name!r}; rename one of the files")
            self._served[name] = Served(name, path, read_version(name, path))
        if not self._served:
            raise OptionError("there is no model to serve; give at least one file")

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def get(self, name: str) -> Served | None:
        return self._served.get(name)


def model_id(path: Path) -> str:
    """The id of a model: the name of its file without suffix, where other characters than a-z, 0-9, _ become -."""
    name = path.name.removesuffix(SUFFIX)
    if name == "model" and path.resolve().parent.name:
        name = path.resolve().parent.name
    return ID_CHARACTERS.sub("-", name).strip("-")[:100] or "model"


def read_version(name: str, path: Path) -> Version:
    """Read a model file, and predict once, so that the first request waits for nothing."""
    model = load(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    status = path.stat()
    if model.tfidf is not None or model.tokenizer is not None:
        model.rank(["warm up"], 1)
    return Version(name, model, digest.hexdigest(), datetime.fromtimestamp(status.st_mtime, UTC), status.st_size)
