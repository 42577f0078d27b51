"""How much label texts count: what the match of a document with the texts of a label (`label_text`) adds to its score.

The more training rows a label has, the less its text counts. With s the best score of x without label texts, but at
least `min_best`, and n the number of rows of l, this is added to the score of l, or is its score if n = 0:

    weight match (score + s match / 6) / (1 + n / half_rows)             if n > 0
    max(min(s zero_weight t, z (0.98 + 0.02 t)),
        0.95 s tanh(strong_weight (t - strong_text) / 0.95))             if n = 0, for the zero_labels best labels

    t = (match + 1.5 related + embedding_weight similar) / (2.5 + embedding_weight)

where z is the fifth best score of labels with rows, with their texts, but at least `min_fifth`. So labels that were
never seen come after the five best ones, and at most `zero_labels` of them are raised at all. Only a strong match, with
t above `strong_text`, comes further up, and does not overtake the best label unless that has a low score itself:
nine of ten rows reach `min_best`, and 49 of 50 reach `min_fifth`.

A label with rows is raised in proportion to its own score, if it is among the 30 best: a weak match does not lift
labels that the regression, which has weighed the same words already, finds unlikely. The square does the same.
"""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from holobind._types import FloatArray, IntArray
from holobind.errors import OptionError

MAX_ZERO_LABELS = 16  # labels without rows that are raised in a row
MAX_FRACTION_OF_BEST = 0.95  # of the best score of a row, that a label without rows may reach by its text
MAX_WEIGHT = 100.0
RELATED_WEIGHT = 1.5
BEST_SHARE = 1 / 6  # of the best score, beside a label's own one


@dataclass(frozen=True)
class TextWeights:
    """How much label texts count, as above."""

    weight: float = 3.0
    half_rows: float = 30.0
    zero_weight: float = 2.5
    zero_labels: int = 3
    strong_weight: float = 2.5
    strong_text: float = 0.3
    embedding_weight: float = 0.0
    min_best: float = 0.0
    min_fifth: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_WEIGHT:
                raise OptionError(f"label text: {name} must be a number from 0 to {MAX_WEIGHT:g}; got {value!r:.40}")
        if not self.half_rows:
            raise OptionError("label text: half_rows must be larger than 0")
        if not isinstance(self.zero_labels, int) or self.zero_labels > MAX_ZERO_LABELS:
            raise OptionError(f"label text: zero_labels must be from 0 to {MAX_ZERO_LABELS}; got {self.zero_labels}")

    def as_json(self) -> dict[str, float]:
        """Numbers that, as keyword arguments of the class, build it again."""
        return asdict(self)

    def by_rows(self, n_rows: IntArray) -> FloatArray:
        """The factor of labels with rows; 0 for others.  Shapes: any"""
        return np.where(n_rows > 0, self.weight / (1 + n_rows / self.half_rows), 0).astype(np.float32)

    def text_score(self, match: FloatArray, related: FloatArray, similar: FloatArray | None) -> FloatArray:
        """t of labels.  Shapes: any, equal"""
        t = match + np.float32(RELATED_WEIGHT) * related
        if similar is not None:
            t += np.float32(self.embedding_weight) * np.maximum(similar, 0)
        return np.asarray(t / np.float32(1 + RELATED_WEIGHT + self.embedding_weight), np.float32)

    def learned(self, match: FloatArray, n_rows: IntArray, own: FloatArray, best: FloatArray) -> FloatArray:
        """What is added to scores of labels with rows, and 0 for others.

        match    of some labels of each row
        n_rows   of these labels
        own      the scores of these labels
        best     the best score of each row

        Shapes: (n, m), (n, m) or (m), (n, m), (n, 1) -> (n, m)
        """
        match = np.maximum(match, 0)
        scores = np.maximum(own, 0) + np.float32(BEST_SHARE) * np.maximum(np.maximum(best, self.min_best), 0) * match
        return np.asarray(self.by_rows(n_rows) * match * scores, np.float32)

    def unseen(self, texts: FloatArray, n_rows: IntArray, best: FloatArray, fifth: FloatArray) -> FloatArray:
        """What is added to scores of labels without rows, and 0 for others.

        texts   t of labels among which are the `zero_labels` best without rows
        fifth   the fifth best score of each row, of labels with rows, with their texts

        Shapes: (n, m), (n, m), (n, 1), (n, 1) -> (n, m)
        """
        first, bound = np.maximum(best, np.float32(self.min_best)), np.float32(MAX_FRACTION_OF_BEST)
        texts = np.maximum(texts, 0)
        strong = np.float32(self.strong_weight) * np.maximum(texts - np.float32(self.strong_text), 0)
        below = np.maximum(fifth, np.float32(self.min_fifth)) * np.float32(0.98 + 0.02 * np.minimum(texts, 1))
        values = np.minimum(first * np.float32(self.zero_weight) * texts, np.maximum(below, 0))
        values = np.maximum(values, first * bound * np.tanh(strong / bound))
        return np.asarray(np.where(self._best_unseen(texts, n_rows == 0), values, 0), np.float32)

    def _best_unseen(self, texts: FloatArray, unseen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which labels are the `zero_labels` best without rows; of equal ones all.  Shapes: 2 x (n, m) -> (n, m)"""
        if not self.zero_labels:
            return np.zeros_like(unseen)
        if self.zero_labels >= texts.shape[1]:
            return unseen
        ranked = -np.partition(-np.where(unseen, texts, -1), self.zero_labels - 1, axis=1)
        return unseen & (texts >= ranked[:, self.zero_labels - 1 : self.zero_labels])
