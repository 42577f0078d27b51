"""What the routes share: the models, the batches, the metrics and the journal of one server."""

import asyncio
import logging
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holobind._types import CsrArray
from holobind.data.csr import from_arrays
from holobind.errors import DataError, HolobindError
from holobind.label_filter import Label, label_ids
from holobind.serve.batching import Batcher, Ranked
from holobind.serve.journal import Journal
from holobind.serve.metrics import Metrics
from holobind.serve.problems import Problem
from holobind.serve.registry import Registry, Served, Version
from holobind.serve.settings import Settings

if TYPE_CHECKING:
    from holobind.explanation import Explanation

NO_KNOWN_WORD, NO_FEATURES = "no known word", "no features"
FEATURE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
FLOAT32_MAX = 3.4028235e38
MAX_PARTS, MAX_NEIGHBOURS = 50, 10  # of an explanation
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

    async def start(self) -> None:
        self.batcher.start()
        self.ready = True

    async def stop(self) -> None:
        self.ready = False
        await self.batcher.stop()

    def served(self, name: str) -> Served:
        found = self.registry.get(name)
        if found is None:
            known = ", ".join(served.id for served in self.registry)
            raise Problem(404, f"there is no model {name[:60]!r}; this server has {known}"[:300])
        return found

    async def reload(self, served: Served) -> Version:
        """Read a model file again; a file that cannot be read leaves the model before in service."""
        try:
            version = await asyncio.to_thread(served.reload)
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


def check_characters(texts: Sequence[object]) -> None:
    """Refuse half a surrogate pair, which JSON can write and no file can."""
    for text in texts:
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise Problem(422, f"a text has half a surrogate pair at character {error.start}; remove it") from error


def feature_matrix(rows: "Sequence[dict[str, float]]", n_features: int) -> CsrArray:
    """Rows {"12": 0.5} as a matrix; a DataError names the feature that is not one.  Shapes: -> sparse (rows, f)"""
    parsed: list[dict[int, float]] = []
    for row in rows:
        values: dict[int, float] = {}
        for key, value in row.items():
            if not FEATURE_ID.fullmatch(key) or int(key) >= n_features:
                raise DataError(f"feature {key[:20]!r} is not an id from 0 to {n_features - 1}")
            if not abs(value) < FLOAT32_MAX:
                raise DataError(f"feature {key} has a value that is not a float32 number")
            values[int(key)] = float(value)
        parsed.append(values)
    indptr = np.cumsum([0, *map(len, parsed)])
    indices = np.fromiter((i for row in parsed for i in sorted(row)), np.int32, int(indptr[-1]))
    data = np.fromiter((row[i] for row in parsed for i in sorted(row)), np.float32, int(indptr[-1]))
    return from_arrays(data, indices, indptr, (len(parsed), n_features))


def label_rows(version: Version, ranked: Ranked, threshold: float) -> list[dict[str, Any]]:
    """Predictions as JSON values. A row without known words or features has no labels, and says so."""
    ranking, names = ranked.ranking, version.names
    unknown = NO_KNOWN_WORD if version.model.reads_texts else NO_FEATURES
    scores, ids, p = ranking.scores.tolist(), ranking.ids.tolist(), ranking.probabilities
    probabilities = [[None] * len(row) for row in ids] if p is None else p.tolist()
    found: list[dict[str, Any]] = []
    for empty, row_scores, row_ids, row_p in zip(ranked.empty, scores, ids, probabilities, strict=True):
        labels = [
            {
                "label": names[label],
                "score": round(score, 6),
                **({} if probability is None else {"probability": round(probability, 4)}),
            }
            for score, label, probability in zip(row_scores, row_ids, row_p, strict=True)
            if not threshold or (round(score, 6) if probability is None else round(probability, 4)) >= threshold
        ]
        found.append({"labels": [], "unknown": unknown} if empty else {"labels": labels})
    return found


def explanation_json(found: "Explanation") -> dict[str, Any]:
    """An explanation as `schemas.ExplanationParts`."""
    neighbours = [part for part in found.parts if part.kind == "training row"]
    neighbours.sort(key=lambda part: -part.details["weight"])
    others = [part for part in found.parts if part.kind != "training row"]
    return {
        "label": found.label,
        "rank": found.rank,
        "score": round(found.score, 6),
        "probability": None if found.probability is None else round(found.probability, 4),
        "method": found.method,
        "words": [] if found.text is None else [(text, round(value, 6)) for text, value in found.marked_words()],
        "parts": [(part.kind, part.name, round(part.value, 6)) for part in others[:MAX_PARTS]],
        "neighbours": [
            {
                "row": part.details["row"],
                "weight": part.details["weight"],
                "adds": round(part.value, 6),
                "has_label": part.details["has label"],
                "labels": part.details["labels"],
                "in_common": part.details["in common"],
            }
            for part in neighbours[:MAX_NEIGHBOURS]
        ],
    }
