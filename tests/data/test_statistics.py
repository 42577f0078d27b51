"""Statistics agree with their definition, and the published ones with each other."""

import numpy as np
import pytest

from holobind import data
from holobind.errors import FileError


def test_statistics_are_those_of_the_dense_matrices():
    dataset = data.synthetic("bibtex", scale=0.2)
    X = np.concatenate([split.X.toarray() for split in dataset.splits.values()])
    Y = np.concatenate([split.Y.toarray() for split in dataset.splits.values()])
    counts = dataset.train.Y.toarray().sum(0)
    found = data.statistics(dataset)
    assert (found["train points"], found["test points"]) == (len(dataset.train), len(dataset.test))
    assert (found["features"], found["labels"]) == (X.shape[1], Y.shape[1])
    assert found["labels per point"] == pytest.approx(Y.sum(1).mean())
    assert found["points per label"] == pytest.approx(Y.sum(0).mean())
    assert found["features per point"] == pytest.approx((X != 0).sum(1).mean())
    assert found["density"] == pytest.approx((X != 0).mean())
    assert found["tail fraction"] == pytest.approx((counts < 10).mean())
    assert found["unseen fraction"] == pytest.approx((counts == 0).mean())
    assert found["most frequent label"] == counts.max()
    assert found["points without labels"] == (Y.sum(1) == 0).sum()


def test_the_plot_is_a_png_or_an_error_that_names_the_file(tmp_path):
    dataset = data.synthetic("bibtex", scale=0.05)
    data.plot(dataset, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileError, match=r"missing/plot.png cannot be written \(No such file"):
        data.plot(dataset, tmp_path / "missing" / "plot.png")


def test_the_paper_s_table_is_consistent():
    table = data.paper_table()
    assert [row["name"] for row in table] == [
        "Mediamill", "Bibtex", "Delicious", "EURLex-4K", "Wiki10-31K", "Amazon-13K", "Delicious-200K", "Amazon-670K",
    ]  # fmt: skip
    for row in table:
        both = row["labels per point"] / row["labels"]
        averages = [both * row["train points"], both * (row["train points"] + row["test points"])]
        assert np.isclose(averages, row["points per label"], rtol=0.01).any(), row
