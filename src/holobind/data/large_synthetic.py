"""Synthetic datasets that are larger than memory: rows are drawn and written block by block.

They are those of `synthetic` in kind, with any numbers of points, features and labels. Each block has a generator of
its own, so a dataset does not depend on what was drawn before, and its first rows are those of any larger one. Values
have three digits after the point.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from holobind._checks import positive
from holobind._checks import seed as check_seed
from holobind._files import atomic_directory
from holobind._types import ProgressCallback
from holobind.data import sparse_text
from holobind.data.csr import normalise_rows_unchecked
from holobind.data.dataset import Split
from holobind.data.registry import Published, published
from holobind.data.synthetic import MIN_SIZES, Topics
from holobind.errors import DataError, OptionError

BLOCK_POINTS = 20_000
DIGITS = 3


def write_synthetic(
    name: str,
    folder: str | Path,
    *,
    points: int,
    test_points: int = 1000,
    features: int | None = None,
    labels: int | None = None,
    features_per_point: int | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> dict[str, int]:
    """Write a dataset like a published one to a new directory, as sparse text. Returns its numbers.

    What is None is as published. Rare labels may not occur in training.

        write_synthetic("amazon-670k", "large", points=10_000_000, features=1_000_000, features_per_point=10)
    """
    info = published(name)
    for what, value in (("points", points), ("test_points", test_points)):
        positive("write_synthetic", what, value)
    if not check_seed("write_synthetic", seed) >= 0:
        raise OptionError(f"seed must be a whole number, 0 or larger; got {seed}")
    info = replace(
        info,
        train=points,
        test=test_points,
        features=info.features if features is None else features,
        labels=info.labels if labels is None else labels,
        features_per_point=info.features_per_point if features_per_point is None else features_per_point,
    )
    for what, least in (*MIN_SIZES.items(), ("features_per_point", 1)):
        if getattr(info, what) < least:
            raise OptionError(f"{what} must be at least {least}; got {getattr(info, what)}")
    if info.features_per_point > info.features / 2:
        raise OptionError(
            f"{info.features_per_point} features a point of {info.features} features are not sparse; take more features"
        )
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} already exists; choose another name, or remove it first")
    topics = Topics.draw(info, info.features, info.labels, np.random.default_rng(seed))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_directory(target) as part:
            for number, (split, n) in enumerate({"train": info.train, "test": info.test}.items()):
                blocks = _blocks(info, topics, n, [seed, number], split, on_progress)
                sparse_text.write_blocks(part / f"{split}.txt", (n, info.features, info.labels), blocks)
    except OSError as error:
        raise DataError(f"{target}: {error.strerror or error}") from error
    return {"train": info.train, "test": info.test, "features": info.features, "labels": info.labels}


def _blocks(
    info: Published, topics: Topics, n: int, seeds: list[int], split: str, on_progress: ProgressCallback | None
) -> Iterator[Split]:
    for first in range(0, n, BLOCK_POINTS):
        if on_progress:
            on_progress(f"drawing {split}", first / n)
        generator = np.random.default_rng([*seeds, first])
        Y = topics.labels(BLOCK_POINTS, info, generator, every_label=False)
        X = normalise_rows_unchecked(topics.features(Y, info, generator))
        X.data = np.maximum(np.round(X.data, DIGITS), np.float32(10.0**-DIGITS))  # no entry is 0
        last = min(BLOCK_POINTS, n - first)
        yield Split(X[:last], Y[:last])
