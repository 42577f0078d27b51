"""Plots: every axis has a name and a unit; names are those of the results."""

import matplotlib.figure
import numpy as np
import pytest

from holobind.cli import plots
from holobind.errors import FileError

RIDGE = {"ridge": {"l2": 1.0, "validation": [[0.1, 40.0], [1.0, 45.0], [10.0, 42.0]]}}
HISTORY = [{"epoch": epoch, "loss": 1 / epoch, "P@1": 40.0 + epoch} for epoch in (1, 2, 3)]
TRAINING = {"training": {"config": {"metric": "P@1"}, "history": HISTORY, "best": 43.0, "best epoch": 3}}


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved while the fixture is in use."""
    saved, savefig = [], matplotlib.figure.Figure.savefig

    def save(figure, *arguments, **options):
        saved.append(figure)
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", save)
    return saved


@pytest.mark.parametrize(
    ("metadata", "x", "y"),
    [
        (RIDGE, "l2 penalty", ["nDCG@5 on held-out rows, percent"]),
        (TRAINING, "epoch", ["training loss, mean per row", "P@1 on held-out rows, percent"]),
    ],
)
def test_curves_have_named_axes(figures, tmp_path, metadata, x, y):
    plots.curves(metadata, tmp_path / "curves.png")
    (figure,) = figures
    assert figure.axes[0].get_xlabel() == x and [axes.get_ylabel() for axes in figure.axes] == y
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_comparison_has_the_names_of_its_rows(figures, tmp_path):
    rows = [
        {"name": name, "train seconds": seconds, "P@1": 60.0 + seconds, "parameters": 1_000_000 * int(1 + seconds)}
        for name, seconds in (("fc, linear head, bce", 3.0), ("closed form", 0.0))
    ]
    plots.comparison(rows, tmp_path / "compare.png", "toy")
    (figure,) = figures
    assert figure.axes[0].get_xlabel() == "training time, seconds"
    assert figure.axes[0].get_ylabel() == "P@1 on test rows, percent"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["fc, linear head, bce (4,000,000)", "closed form (1,000,000)"]


def test_reliability_shows_the_error_and_the_bins(figures, tmp_path):
    plots.reliability([(0.1, 0.2, 30), (0.8, 0.7, 10)], "toy", tmp_path / "plot.png")
    (figure,) = figures
    axes = figure.axes[0]
    assert "expected calibration error 10.00%" in axes.get_title() and axes.get_ylabel() == "fraction that is right"
    assert axes.get_xlabel() == "predicted probability of the five best labels"
    assert axes.lines[-1].get_xydata().tolist() == [[0.1, 0.2], [0.8, 0.7]]


def test_label_quality_has_a_point_for_each_label_that_occurs(figures, tmp_path):
    plots.label_quality(np.array([4, 0, 1, 5]), np.array([50.0, 0.0, 0.0, 100.0]), "toy", tmp_path / "plot.png")
    (figure,) = figures
    axes = figure.axes[0]
    assert len(axes.collections[0].get_offsets()) == 3 and axes.get_ylabel() == "F1, percent"
    assert axes.lines[0].get_ydata().tolist() == [0.0, 75.0]


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.JPG", b"\xff\xd8"), ("a", b"\x89PNG")],
)
def test_the_end_of_the_path_says_the_format(tmp_path, name, start):
    plots.curves(RIDGE, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_an_unwritable_path_is_a_file_error(tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        plots.curves(RIDGE, tmp_path / "nowhere" / "curves.png")
