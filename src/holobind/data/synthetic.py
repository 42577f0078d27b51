"""Synthetic datasets with the statistics of a published one, and labels that can be learned from the features.

Label frequencies follow a power law. Each label owns a topic, which is a small set of features. A fraction of a point's
features is drawn from the topics of its labels; the other features are noise, which follows a power law of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holobind._checks import fits_memory
from holobind._checks import seed as check_seed
from holobind._types import CsrArray, IntArray, ProgressCallback
from holobind.data.csr import from_arrays, normalise_rows_unchecked
from holobind.data.dataset import Dataset, Split
from holobind.data.registry import Published, published
from holobind.errors import OptionError

MIN_TOPIC_FEATURES = 8  # features per topic; more where points have more features, so that a topic is not exhausted
TOPIC_FRACTION = 0.4  # fraction of a point's features that are drawn from the topics of its labels
POWER_LAW_OFFSET = 10.0  # in P(rank) ~ 1 / (rank + offset): keeps the most frequent label out of some points
MIN_SIZES = {"train": 8, "test": 4, "features": 16, "labels": 4}
POWER_LAW_ROUNDS = 4  # rounds of drawing distinct columns from the power law, before they are drawn uniformly
MAX_ROUNDS = 60
BYTES_PER_ENTRY = 8  # of a matrix, at least


def synthetic(
    name: str = "eurlex-4k", *, scale: float = 1.0, seed: int = 0, on_progress: ProgressCallback | None = None
) -> Dataset:
    """A dataset with the statistics of a published one; `scale` multiplies the number of points, features and labels.

    Labels per point and features per point stay as published, as far as there are enough labels and features. Points
    per label stay as published, too.

        dataset = synthetic("amazon-670k", scale=0.1)
    """
    info = published(name)
    if not 0 < scale < np.inf:
        raise OptionError(f"scale must be a number above 0, got {scale}")
    if not check_seed("synthetic", seed) >= 0:
        raise OptionError(f"seed must be a whole number, 0 or larger; got {seed}")
    generator = np.random.default_rng(seed)
    n_train, n_test, n_features, n_labels = (
        max(round(getattr(info, what) * scale), minimum) for what, minimum in MIN_SIZES.items()
    )
    n_entries = (n_train + n_test) * round(info.features_per_point + info.labels_per_point)
    fits_memory(f"{n_train + n_test:,} points", BYTES_PER_ENTRY * (n_entries + n_features), "take a smaller scale")
    topics = Topics.draw(info, n_features, n_labels, generator)

    def draw_split(n_points: int, what: str) -> Split:
        if on_progress:
            on_progress(f"drawing {what}", 0.0)
        Y = topics.labels(n_points, info, generator, every_label=what == "train")
        if on_progress:
            on_progress(f"drawing {what}", 0.3)
        if info.features_per_point > n_features / 2:
            X = _dense_features(Y, topics.of_labels, n_features, generator)
        else:
            X = topics.features(Y, info, generator)
        if on_progress:
            on_progress(f"drawing {what}", 1.0)
        return Split(normalise_rows_unchecked(X), Y)

    return Dataset(draw_split(n_train, "train"), draw_split(n_test, "test"), name=f"synthetic-{info.key}")


@dataclass(frozen=True, eq=False)
class Topics:
    """What all points of a dataset share.

    label_order, feature_order   ids by rank of frequency: random, because ids of real data are not ordered by it
    of_labels                    (labels, topic size) features of each label
    """

    label_order: IntArray
    feature_order: IntArray
    of_labels: NDArray[np.int32]

    @classmethod
    def draw(cls, info: Published, n_features: int, n_labels: int, generator: np.random.Generator) -> "Topics":
        label_order, feature_order = generator.permutation(n_labels), generator.permutation(n_features)
        size = max(MIN_TOPIC_FEATURES, round(2 * TOPIC_FRACTION * info.features_per_point / info.labels_per_point))
        of_labels = generator.integers(0, n_features, (n_labels, min(size, n_features)), dtype=np.int32)
        return cls(label_order, feature_order, of_labels)

    def labels(self, n: int, info: Published, generator: np.random.Generator, *, every_label: bool) -> CsrArray:
        """Label sets of n points.  Shapes: -> (n, labels)"""
        return _draw_labels(n, info, self.label_order, generator, every_label=every_label)

    def features(self, Y: CsrArray, info: Published, generator: np.random.Generator) -> CsrArray:
        """Features of points with these label sets.  Shapes: (points, labels) -> (points, features)"""
        return _sparse_features(Y, self.of_labels, info, self.feature_order, generator)


def _draw_labels(
    n_points: int, info: Published, label_order: IntArray, generator: np.random.Generator, every_label: bool
) -> CsrArray:
    """Labels from the power law.  Shapes: -> (points, labels)

    As in the published data every label occurs in training, if that leaves half of the entries to the power law.
    """
    n_labels = len(label_order)
    sizes = 1 + generator.poisson(max(info.labels_per_point - 1, 0), n_points)
    sizes = np.minimum(sizes, n_labels)
    shuffled_rows = generator.permutation(np.repeat(np.arange(n_points), sizes))
    n_fixed = n_labels if every_label and len(shuffled_rows) >= 2 * n_labels else 0
    fixed = np.unique(shuffled_rows[:n_fixed] * n_labels + np.arange(n_fixed))

    def draw(rows: IntArray) -> IntArray:
        drawn: IntArray = label_order[_power_law(n_labels, len(rows), generator)]
        return drawn

    return _draw_distinct(sizes, n_labels, fixed, draw, generator)


def _sparse_features(
    Y: CsrArray, topics: NDArray[np.int32], info: Published, feature_order: IntArray, generator: np.random.Generator
) -> CsrArray:
    """Features of topics and noise, with log-normal values.  Shapes: (points, labels), (labels, topic size) -> (points,
    features)
    """
    n_features = len(feature_order)
    sizes = np.clip(generator.poisson(info.features_per_point, Y.shape[0]), 1, n_features // 2)
    starts, ends = Y.indptr[:-1].astype(np.int64), Y.indptr[1:].astype(np.int64)

    def draw(rows: IntArray) -> IntArray:
        label = Y.indices[generator.integers(starts[rows], ends[rows])]
        topic = topics[label, generator.integers(0, topics.shape[1], len(rows))]
        noise = feature_order[_power_law(n_features, len(rows), generator)]
        drawn: IntArray = np.where(generator.random(len(rows)) < TOPIC_FRACTION, topic, noise)
        return drawn

    X = _draw_distinct(sizes, n_features, np.empty(0, np.int64), draw, generator)
    X.data = np.exp(0.5 * generator.standard_normal(X.nnz)).astype(np.float32)
    return X


def _dense_features(
    Y: CsrArray, topics: NDArray[np.int32], n_features: int, generator: np.random.Generator
) -> CsrArray:
    """Uniform noise in every feature, plus 1 where a label of the point owns the feature."""
    n_points = Y.shape[0]
    values = generator.random((n_points, n_features), dtype=np.float32)
    rows = np.repeat(np.arange(n_points), np.diff(Y.indptr))
    np.add.at(values, (rows[:, None], topics[Y.indices]), np.float32(1))
    ids = np.tile(np.arange(n_features), n_points)
    return from_arrays(values.ravel(), ids, np.arange(n_points + 1) * n_features, (n_points, n_features))


def _power_law(n: int, size: int, generator: np.random.Generator) -> IntArray:
    """Draw ranks below n with P(rank) in proportion to 1 / (rank + offset), by inverting its integral."""
    drawn = POWER_LAW_OFFSET * ((n + POWER_LAW_OFFSET) / POWER_LAW_OFFSET) ** generator.random(size) - POWER_LAW_OFFSET
    return np.minimum(drawn.astype(np.int64), n - 1)


def _draw_distinct(
    sizes: IntArray, n: int, keys: IntArray, draw: Callable[[IntArray], IntArray], generator: np.random.Generator
) -> CsrArray:
    """A matrix of ones with `sizes[i]` distinct columns in row i.  Shapes: (rows), (entries) -> (rows, n)

    An entry is represented by its key, row * n + column; `keys` are the entries known in advance, ascending. Each round
    draws the entries that are still missing. Where the frequent columns of a row are exhausted, the power law keeps
    repeating them, so after 4 rounds columns are drawn uniformly, which soon finds the rest.
    """
    n_rows = len(sizes)
    for attempt in range(MAX_ROUNDS):
        missing = sizes - np.bincount(keys // n, minlength=n_rows)
        rows = np.repeat(np.arange(n_rows), np.maximum(missing, 0))
        if not len(rows):
            break
        columns = draw(rows) if attempt < POWER_LAW_ROUNDS else generator.integers(0, n, len(rows))
        drawn = np.unique(rows * n + columns)
        place = np.searchsorted(keys, drawn)
        if len(keys):
            known = keys[np.minimum(place, len(keys) - 1)] == drawn
            drawn, place = drawn[~known], place[~known]
        keys = np.insert(keys, place, drawn)
    rows, columns = np.divmod(keys, n)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    return from_arrays(np.ones(len(keys), np.int32), columns, indptr, (n_rows, n))
