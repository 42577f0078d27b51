"""Learning from the journal: documents of the journal -> `Model.update` -> a new model file -> the model in service.

The journal is the truth: a document is in it before its request is answered. A learned file says which model file it
began with and how much of the journal it has. So a server that was killed goes on, at its next start, with the last
learned file and the documents after it. Documents that were sent to another model file are not learned: they are for
the training of the next one.

    DIR/ID.jsonl                        the journal of the model ID
    DIR/ID/00000012.safetensors         the model with 12 documents of the journal; the last `keep` of them
"""

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holobind.errors import HolobindError
from holobind.model import Model
from holobind.serve.journal import Journal
from holobind.serve.registry import SUFFIX, Served, Version, read_version
from holobind.serve.rows import feature_matrix

MAX_STEP_DOCUMENTS = 1024  # learned at a time
LEARNED_FILE = re.compile(r"(\d{8,12})" + re.escape(SUFFIX))
log = logging.getLogger("holobind.serve")


class Learner:
    """Keeps the model in service up to date with its journal.

    base        digest of the model file that was trained
    documents   of the journal that the model in service has
    position    byte of the journal up to which it was read
    """

    def __init__(self, served: Served, journal: Journal, keep: int) -> None:
        self.served, self.journal, self.keep = served, journal, keep
        self.folder = journal.directory / served.id
        self.base, self.documents, self.position = "", 0, 0
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[bool] | None = None

    async def reach(self, position: int, seconds: float) -> bool:
        """Learn the journal up to a position; False if that takes longer, fails, or is not possible for this model."""
        last = time.monotonic() + seconds
        while self.position < position and self.served.current.model.can_learn_on:
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._catch_up())
            await asyncio.wait({self._running}, timeout=last - time.monotonic())
            if not (self._running.done() and self._running.result()):
                return False
        return self.served.current.model.can_learn_on

    async def settle(self) -> None:
        """Wait until nothing is being learned."""
        if self._running is not None:
            await self._running

    async def begin_again(self) -> Version:
        """Put into service the model of the file as it is now, with its journal; the file may be another one."""

        async def read() -> Version:
            async with self._lock:
                self.served.current = await asyncio.to_thread(lambda: self.resume(self.served.read()))
                return self.served.current

        return await asyncio.shield(asyncio.create_task(read()))

    async def _catch_up(self) -> bool:
        """Learn until the end of the journal; False if that fails: the next document, or start, tries again."""
        try:
            async with self._lock:
                while (version := await asyncio.to_thread(self.step, self.served.current)) is not None:
                    self.served.current = version
        except Exception:
            log.exception("%s does not learn; its journal keeps the documents", self.served.id)
            return False
        return True

    def resume(self, base: Version) -> Version:
        """The model that has all of the journal, beginning with the newest learned file of a trained one."""
        self.base, self.documents, self.position = base.digest, 0, 0
        version = base
        for path in reversed(self._files()):
            try:
                found = read_version(base.id, path)
                learned = found.model.metadata["learned"]
                if learned["base"] != base.digest:
                    continue
                self.documents, self.position = int(learned["documents"]), int(learned["position"])
            except (HolobindError, OSError, KeyError, TypeError, ValueError) as error:
                log.warning("%s is not used: %s", path, error)
                continue
            version = found
            break
        if self.position > self.journal.size(base.id):
            log.warning("the journal of %s is shorter than it was; it is read from its beginning", base.id)
            self.position = 0
        while (newer := self.step(version)) is not None:
            version = newer
        return version

    def step(self, version: Version) -> Version | None:
        """The model after the next documents of the journal, written to a file; None if there are no more of them."""
        if not version.model.can_learn_on:
            return None
        found, end = self.journal.read_from(version.id, self.position, MAX_STEP_DOCUMENTS)
        if end == self.position:
            return None
        documents = [document for document in found if document.get("base") == self.base[:16]]
        model, n_learned = update_model(version.model, documents) if documents else (version.model, 0)
        total = self.documents + n_learned
        if n_learned:
            model.metadata["learned"] = {"base": self.base, "documents": total, "position": end}
            path = self.folder / f"{total:08d}{SUFFIX}"
            self.folder.mkdir(exist_ok=True)
            model.save(path)
            version = read_version(version.id, path)
            for old in self._files()[: -self.keep]:
                old.unlink(missing_ok=True)
        self.documents, self.position = total, end
        return version

    def _files(self) -> list[Path]:
        """All learned files, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if LEARNED_FILE.fullmatch(path.name))


def update_model(model: Model, documents: Sequence[dict[str, Any]]) -> tuple[Model, int]:
    """The model after some documents, and how many of them it learned. A document that it refuses is left out."""
    try:
        return _updated(model, documents), len(documents)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if len(documents) == 1:
            log.warning("a document of %s is not learned: %s", documents[0].get("time"), error, exc_info=True)
            return model, 0
    n_learned = 0
    for document in documents:
        model, n = update_model(model, [document])
        n_learned += n
    return model, n_learned


def _updated(model: Model, documents: Sequence[dict[str, Any]]) -> Model:
    n_features = model.network.n_features
    inputs: Any = (
        [document["text"] for document in documents]
        if model.reads_texts
        else feature_matrix([document["features"] for document in documents], n_features or 0)
    )
    labels = [document["labels"] for document in documents]
    rejected = [document.get("rejected", []) for document in documents]
    return model.update(inputs, labels, rejected=rejected)
