"""Synthetic datasets have the statistics of the published ones, and labels that can be learned."""

import numpy as np
import pytest
from helpers.twins import identical

from holobind import data, metrics
from holobind.errors import OptionError


@pytest.mark.parametrize("name", data.PUBLISHED)
def test_statistics_follow_those_of_every_published_dataset(name):
    info = data.published(name)
    scale = min(1, 1500 / info.train)
    dataset = data.synthetic(name, scale=scale)
    found = data.statistics(dataset)
    assert found["train points"] == round(info.train * scale)
    assert found["features"] == max(16, round(info.features * scale))
    assert found["labels"] == max(4, round(info.labels * scale))
    if found["labels"] > 8 * info.labels_per_point:
        assert found["labels per point"] == pytest.approx(info.labels_per_point, rel=0.1)
    if found["features"] > 4 * info.features_per_point:
        assert found["features per point"] == pytest.approx(info.features_per_point, rel=0.05)
    for split in dataset.splits.values():
        assert np.isfinite(split.X.data).all() and split.X.dtype == np.float32 and set(split.Y.data) == {1}
        for m in (split.X, split.Y):
            m.check_format(full_check=True)
            ascending = np.diff(m.indices.astype(np.int64)) > 0
            ascending[m.indptr[1:-1] - 1] = True
            assert ascending.all()
        assert np.allclose(split.X.power(2).sum(1), 1, atol=1e-3)


def test_the_same_seed_gives_the_same_dataset():
    one, two, other = (data.synthetic("eurlex-4k", scale=0.05, seed=seed) for seed in (1, 1, 2))
    assert identical(one.train.X, two.train.X) and identical(one.test.Y, two.test.Y)
    assert not identical(one.train.X, other.train.X)


def test_a_dataset_in_blocks_is_like_the_others_and_begins_like_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setattr("holobind.data.large_synthetic.BLOCK_POINTS", 300)
    sizes = {"features": 2000, "labels": 500, "features_per_point": 12}
    for points in (400, 1000):
        data.write_synthetic("amazon-670k", tmp_path / str(points), points=points, test_points=20, **sizes)
    small, large = (data.load(tmp_path / str(points)) for points in (400, 1000))
    found = data.statistics(large)
    assert (found["train points"], found["test points"], found["features"], found["labels"]) == (1000, 20, 2000, 500)
    assert found["features per point"] == pytest.approx(12, rel=0.05)
    assert found["labels per point"] == pytest.approx(data.published("amazon-670k").labels_per_point, rel=0.1)
    assert identical(small.train.X, large.train.X[:400]) and identical(small.train.Y, large.train.Y[:400])
    assert not identical(large.train.X[:300], large.train.X[300:600])  # blocks differ
    assert np.allclose(large.train.X.power(2).sum(1), 1, atol=0.01)
    with pytest.raises(OptionError, match="already exists"):
        data.write_synthetic("amazon-670k", tmp_path / "400", points=10)
    with pytest.raises(OptionError, match="are not sparse; take more features"):
        data.write_synthetic("amazon-670k", tmp_path / "new", points=10, features=100)
    assert not (tmp_path / "new").exists()


def test_frequencies_follow_a_power_law():
    dataset = data.synthetic("eurlex-4k")
    counts = np.sort(np.bincount(dataset.train.Y.indices))[::-1]
    assert counts[0] > 20 * np.median(counts) and counts[-1] >= 1
    ranks = np.arange(20, 2000)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks]), 1)[0]
    assert -1.3 < slope < -0.5


@pytest.mark.parametrize("name", ["eurlex-4k", "bibtex", "mediamill", "wiki10-31k"])
def test_the_labels_can_be_learned_from_the_features(name):
    dataset = data.synthetic(name, scale=0.1)
    train, test = dataset.train, dataset.test
    centres = (train.X.T @ train.Y).toarray()  # a nearest centroid classifier
    centres /= np.linalg.norm(centres, axis=0) + 1e-9
    found = metrics.precision_at_k(test.Y, metrics.top_k(test.X @ centres, 1))[0]
    constant = 100 * test.Y.sum(0).max() / len(test)
    assert found > 1.5 * constant + 5


def test_unknown_names_and_invalid_scales_are_errors():
    with pytest.raises(OptionError, match="dataset 'mnist' is unknown; choose one of mediamill, bibtex"):
        data.synthetic("mnist")
    for scale in (0, -1, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="scale must be a number above 0"):
            data.synthetic("bibtex", scale=scale)
