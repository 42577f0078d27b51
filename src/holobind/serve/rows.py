"""Rows of requests and of answers: features as matrices, rankings and explanations as JSON values."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holobind._types import CsrArray
from holobind.data.csr import from_arrays
from holobind.errors import DataError
from holobind.serve.batching import Ranked
from holobind.serve.problems import Problem
from holobind.serve.registry import Version

if TYPE_CHECKING:
    from holobind.explanation import Explanation

NO_KNOWN_WORD, NO_FEATURES = "no known word", "no features"
FEATURE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
FLOAT32_MAX = 3.4028235e38
MAX_PARTS, MAX_NEIGHBOURS = 50, 10  # of an explanation


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
