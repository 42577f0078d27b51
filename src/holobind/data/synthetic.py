"""Datasets in the shape of a published one, with structure that can be learned, from a seed.

Label frequencies follow a power law. Every label owns a topic, a few features. Many features of a point come from the
topics of its labels, the others are noise with a power law of its own. So the features tell the labels.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from holobind._types import CsrArray, ProgressCallback
from holobind.data.csr import from_arrays
from holobind.data.dataset import Dataset, Split
from holobind.data.registry import published
from holobind.errors import OptionError

LEAST_TOPIC = 8  # features a label owns; more where points have more, so that topics are not used up
SIGNAL = 0.4  # share of a point's features that come from its labels' topics
FLAT = 10.0  # the power law (rank + FLAT)^-1 keeps the most frequent label from being in every point

Ints = NDArray[np.int64]


def synthetic(
    name: str = "eurlex-4k", *, scale: float = 1.0, seed: int = 0, progress: ProgressCallback | None = None
) -> Dataset:
    """A dataset that follows the statistics of a published one; `scale` multiplies points, features and labels.

    Labels a point and features a point stay as published (as far as there are enough of them), hence also points a
    label.

        dataset = synthetic("amazon-670k", scale=0.1)
    """
    about = published(name)
    if not 0 < scale < np.inf:
        raise OptionError(f"scale must be a number above 0, got {scale}")
    generator = np.random.default_rng(seed)
    train, test, features, labels = (
        max(round(n * scale), least)
        for n, least in ((about.train, 8), (about.test, 4), (about.features, 16), (about.labels, 4))
    )
    # Frequent labels are not the ones with the lowest ids, nor features: real ids are in no such order.
    label_order, feature_order = generator.permutation(labels), generator.permutation(features)
    topic = max(LEAST_TOPIC, round(2 * SIGNAL * about.features_a_point / about.labels_a_point))
    topics = generator.integers(0, features, (labels, min(topic, features)), dtype=np.int32)

    def part(points: int, what: str) -> Split:
        if progress:
            progress(f"drawing {what}", 0.0)
        sizes = 1 + generator.poisson(max(about.labels_a_point - 1, 0), points)
        sizes = np.minimum(sizes, labels)
        once = generator.permutation(np.repeat(np.arange(points), sizes))
        # As in the published data, every label occurs in training, if that leaves half of the places to the power law.
        seen = labels if what == "train" and len(once) >= 2 * labels else 0
        known = np.unique(once[:seen] * labels + np.arange(seen))
        Y = _distinct(
            sizes, labels, known, lambda rows: label_order[_power_law(labels, len(rows), generator)], generator
        )
        if progress:
            progress(f"drawing {what}", 0.3)
        if about.features_a_point > features / 2:
            X = _dense(Y, topics, features, generator)
        else:
            sizes = np.clip(generator.poisson(about.features_a_point, points), 1, features // 2)
            starts, ends = Y.indptr[:-1].astype(np.int64), Y.indptr[1:].astype(np.int64)

            def draw(rows: Ints) -> Ints:
                label = Y.indices[generator.integers(starts[rows], ends[rows])]
                owned = topics[label, generator.integers(0, topics.shape[1], len(rows))]
                noise = feature_order[_power_law(features, len(rows), generator)]
                drawn: Ints = np.where(generator.random(len(rows)) < SIGNAL, owned, noise)
                return drawn

            X = _distinct(sizes, features, np.empty(0, np.int64), draw, generator)
            X.data = np.exp(0.5 * generator.standard_normal(X.nnz)).astype(np.float32)
        norms = np.sqrt(np.add.reduceat(X.data.astype(np.float64) ** 2, X.indptr[:-1]))
        X.data = (X.data / np.repeat(norms, np.diff(X.indptr))).astype(np.float32)
        if progress:
            progress(f"drawing {what}", 1.0)
        return Split(X, Y)

    return Dataset(part(train, "train"), part(test, "test"), name=f"synthetic-{about.key}")


def _power_law(n: int, size: int, generator: np.random.Generator) -> Ints:
    """Numbers below n with P(i) in proportion to 1 / (i + FLAT), by inverting the integral of that."""
    drawn = FLAT * ((n + FLAT) / FLAT) ** generator.random(size) - FLAT
    return np.minimum(drawn.astype(np.int64), n - 1)


def _distinct(
    sizes: Ints, n: int, keys: Ints, draw: Callable[[Ints], Ints], generator: np.random.Generator
) -> CsrArray:
    """A matrix of ones with `sizes[i]` different columns in row i: draw what is missing, until nothing is.

    An entry is one number, row * n + column; `keys` are those known already, ascending. Where the frequent columns of a
    row are used up, draws repeat them; after a few rounds the rest is drawn evenly, which ends soon.
    """
    points = len(sizes)
    for attempt in range(60):
        missing = sizes - np.bincount(keys // n, minlength=points)
        rows = np.repeat(np.arange(points), np.maximum(missing, 0))
        if not len(rows):
            break
        fresh = np.unique(rows * n + (draw(rows) if attempt < 4 else generator.integers(0, n, len(rows))))
        place = np.searchsorted(keys, fresh)
        if len(keys):
            known = keys[np.minimum(place, len(keys) - 1)] == fresh
            fresh, place = fresh[~known], place[~known]
        keys = np.insert(keys, place, fresh)
    rows, columns = np.divmod(keys, n)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=points))])
    return from_arrays(np.ones(len(keys), np.int32), columns, ends, (points, n))


def _dense(Y: CsrArray, topics: NDArray[np.int32], n: int, generator: np.random.Generator) -> CsrArray:
    """Every feature of every point: noise, and more where a label of the point owns the feature."""
    points = Y.shape[0]
    values = generator.random((points, n), dtype=np.float32)
    rows = np.repeat(np.arange(points), np.diff(Y.indptr))
    np.add.at(values, (rows[:, None], topics[Y.indices]), np.float32(1))
    ids = np.tile(np.arange(n), points)
    return from_arrays(values.ravel(), ids, np.arange(points + 1) * n, (points, n))
