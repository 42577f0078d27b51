"""Synthetic datasets have the shape that is asked for, and something to learn."""

import numpy as np
import pytest
from helpers.twins import identical

from holobind import data, metrics
from holobind.errors import OptionError


@pytest.mark.parametrize("name", data.PUBLISHED)
def test_every_published_dataset_has_a_synthetic_twin(name):
    about = data.published(name)
    scale = min(1, 1500 / about.train)
    dataset = data.synthetic(name, scale=scale)
    found = data.statistics(dataset)
    assert found["train points"] == round(about.train * scale)
    assert found["features"] == max(16, round(about.features * scale))
    assert found["labels"] == max(4, round(about.labels * scale))
    if found["labels"] > 8 * about.labels_a_point:
        assert found["labels a point"] == pytest.approx(about.labels_a_point, rel=0.1)
    if found["features"] > 4 * about.features_a_point:
        assert found["features a point"] == pytest.approx(about.features_a_point, rel=0.05)
    for part in dataset.splits.values():
        assert np.isfinite(part.X.data).all() and part.X.dtype == np.float32 and set(part.Y.data) == {1}
        for m in (part.X, part.Y):
            m.check_format(full_check=True)
            ascending = np.diff(m.indices.astype(np.int64)) > 0
            ascending[m.indptr[1:-1] - 1] = True
            assert ascending.all()
        assert np.allclose(part.X.power(2).sum(1), 1, atol=1e-3)


def test_the_same_seed_gives_the_same_dataset():
    one, two, other = (data.synthetic("eurlex-4k", scale=0.05, seed=seed) for seed in (1, 1, 2))
    assert identical(one.train.X, two.train.X) and identical(one.test.Y, two.test.Y)
    assert not identical(one.train.X, other.train.X)


def test_frequencies_follow_a_power_law():
    dataset = data.synthetic("eurlex-4k")
    counts = np.sort(np.bincount(dataset.train.Y.indices))[::-1]
    assert counts[0] > 20 * np.median(counts) and counts[-1] >= 1
    ranks = np.arange(20, 2000)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks]), 1)[0]
    assert -1.3 < slope < -0.5


@pytest.mark.parametrize("name", ["eurlex-4k", "bibtex", "mediamill", "wiki10-31k"])
def test_the_features_tell_the_labels(name):
    dataset = data.synthetic(name, scale=0.1)
    train, test = dataset.train, dataset.test
    centres = (train.X.T @ train.Y).toarray()  # about the least one can learn: the mean point of each label
    centres /= np.linalg.norm(centres, axis=0) + 1e-9
    found = metrics.precision_at_k(test.Y, metrics.top_k(test.X @ centres, 1))[0]
    constant = 100 * test.Y.sum(0).max() / len(test)
    assert found > 1.5 * constant + 5


def test_wrong_names_and_scales_are_told():
    with pytest.raises(OptionError, match="dataset 'mnist' is unknown; there are mediamill, bibtex"):
        data.synthetic("mnist")
    for scale in (0, -1, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="scale must be a number above 0"):
            data.synthetic("bibtex", scale=scale)
