"""What the routes share: the models, the batches, the metrics and the journal of one server."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from holobind._files import exclusive
from holobind._types import CsrArray
from holobind.errors import HolobindError
from holobind.label_filter import Label, label_ids
from holobind.serve.batching import Batcher, Ranked
from holobind.serve.journal import Journal
from holobind.serve.learning import Learner
from holobind.serve.metrics import Metrics
from holobind.serve.problems import Problem
from holobind.serve.registry import Registry, Served, Version
from holobind.serve.rows import check_characters, explanation_json, feature_matrix
from holobind.serve.settings import Settings

CANNOT_LEARN = "this server does not learn; start it with --journal DIR"
log = logging.getLogger("holobind.serve")


class Service:
    """The state of a server."""

    def __init__(self, paths: Sequence[Path], settings: Settings) -> None:
        self.settings = settings
        self.registry = Registry(paths)
        self.metrics = Metrics()
        self.batcher = Batcher(settings, self.metrics.add_batch)
        self.ready = False
        self.journal = None if settings.journal is None else Journal(settings.journal)
        self.learners: dict[str, Learner] = {}
        if self.journal is not None:
            self.learners = {each.id: Learner(each, self.journal, settings.keep) for each in self.registry}
        self._held = contextlib.ExitStack()

    async def start(self) -> None:
        if self.journal is not None:
            self._held.enter_context(exclusive(self.journal.directory / "journal"))
        for served in self.registry:
            if served.id in self.learners:
                served.current = await asyncio.to_thread(self.learners[served.id].resume, served.current)
        self.batcher.start()
        self.ready = True

    async def stop(self) -> None:
        self.ready = False
        for learner in self.learners.values():
            await learner.settle()
        await self.batcher.stop()
        self._held.close()

    def served(self, name: str) -> Served:
        found = self.registry.get(name)
        if found is None:
            known = ", ".join(served.id for served in self.registry)
            raise Problem(404, f"there is no model {name[:60]!r}; this server has {known}"[:300])
        return found

    async def reload(self, served: Served) -> Version:
        """Read a model file again; a file that cannot be read leaves the model before in service."""
        learner = self.learners.get(served.id)
        try:
            if learner is None:
                served.current = version = await asyncio.to_thread(served.read)
            else:
                version = await learner.begin_again()
        except (HolobindError, OSError) as error:
            log.warning("%s is not replaced: %s", served.id, error)
            raise Problem(409, f"the model before stays in service: {error}", title="Model not replaced") from error
        log.info("%s is version %s now", served.id, version.digest[:16])
        return version

    async def reload_all(self) -> None:
        """Read all model files again, on SIGHUP."""
        for served in self.registry:
            try:
                await self.reload(served)
            except Problem:
                continue  # is in the log

    async def learn(self, served: Served, documents: Sequence[dict[str, Any]]) -> bool:
        """Keep documents in the journal, and learn them; whether the model in service has them already."""
        if self.journal is None:
            raise Problem(501, CANNOT_LEARN)
        learner = self.learners[served.id]
        position = await asyncio.to_thread(
            self.journal.add, served.id, served.current.digest[:16], learner.base[:16], documents
        )
        return await learner.reach(position, self.settings.learn_seconds)

    # Rows.

    def texts(self, version: Version, texts: Sequence[str]) -> list[str]:
        """Texts within the limits, for a model that reads texts."""
        if not version.model.reads_texts:
            raise Problem(422, f"the model {version.id} reads features, not texts; send features")
        self.check_rows(len(texts))
        longest = max(map(len, texts), default=0)
        if longest > self.settings.max_text_characters:
            limit = self.settings.max_text_characters
            raise Problem(413, f"a text has at most {limit:,} characters, got {longest:,}; divide it")
        check_characters(texts)
        return list(texts)

    def features(self, version: Version, rows: "Sequence[dict[str, float]]") -> CsrArray:
        """Rows of features within the limits, as a matrix."""
        n_features = version.model.network.n_features
        if version.model.reads_texts or n_features is None:
            raise Problem(422, f"the model {version.id} reads texts, not features; send a text")
        self.check_rows(len(rows))
        return feature_matrix(rows, n_features)

    def check_rows(self, n: int) -> None:
        if not 1 <= n <= self.settings.max_rows:
            raise Problem(422, f"a request has 1 to {self.settings.max_rows} rows, got {n}")

    async def rank(self, version: Version, inputs: Any, k: int, exclude: Sequence[Label] = ()) -> Ranked:
        """The k best labels of rows, in a batch with those of other requests."""
        if k > self.settings.max_k:
            raise Problem(422, f"k is from 1 to {self.settings.max_k}, got {k}")
        if len(exclude) > self.settings.max_k:
            raise Problem(422, f"exclude has at most {self.settings.max_k} labels, got {len(exclude)}")
        model = version.model
        if exclude:  # a mistake is the answer to this request alone
            exclude = sorted(set(label_ids("exclude", exclude, model.n_labels, model.label_names).tolist()))
        return await self.batcher.rank(version, inputs, k, exclude)

    async def explain(self, version: Version, row: Any, labels: Sequence[Label]) -> list[dict[str, Any]]:
        """Explanations of some labels of one row."""
        model = version.model
        label_ids("explain", labels, model.n_labels, model.label_names)
        found = await self.batcher.run(lambda: model.explain(row, labels))
        return [explanation_json(each) for each in found]

    @cached_property
    def vocabulary(self) -> dict[str, str]:
        """Names by URI, of the file that the settings name."""
        from holobind.data.tables.vocabulary import read_vocabulary

        return {} if self.settings.vocabulary is None else read_vocabulary(self.settings.vocabulary)
