"""A small dataset with names and texts that are hard to store, and the comparison of datasets."""

import numpy as np
from helpers.twins import csr, identical
from scipy import sparse

from holobind.data import Dataset, Split

LABEL_NAMES = ["\ufeffred wine", "Öl\u2028", "c++", "a,b", "0:1"]
TEXTS = {"train": ["\ufeffOne fish, two fish", "", " red\u2028fish "], "test": ["blue fish"]}


def small_dataset(names=True, texts=True, test=True):
    """Three training points and one test point with 7 features and 5 labels."""

    def split(name, labels, seed):
        generator = np.random.default_rng(seed)
        X = sparse.random_array((len(labels), 7), density=0.5, format="csr", dtype=np.float32, rng=generator)
        X.sort_indices()
        Y = csr([[(label, 1) for label in row] for row in labels], 5, np.int32)
        return Split(X, Y, TEXTS[name] if texts else None)

    return Dataset(
        split("train", [[0, 3], [], [1]], 0),
        split("test", [[4]], 1) if test else None,
        list(LABEL_NAMES) if names else None,
        [f"word {i}" for i in range(7)] if names else None,
    )


def assert_same(a, b, features=True):
    """Check that two datasets have the same splits and names; `features` are compared if wanted."""
    assert a.splits.keys() == b.splits.keys()
    for one, other in zip(a.splits.values(), b.splits.values(), strict=True):
        assert identical(one.Y, other.Y) and one.texts == other.texts
        assert not features or identical(one.X, other.X)
    assert a.label_names == b.label_names and (not features or a.feature_names == b.feature_names)
