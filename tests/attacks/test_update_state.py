"""Model files whose state for updates is not what it should be."""

import functools

import numpy as np
import pytest
import torch
from helpers.commands import is_one_line_error, run
from helpers.hostile import hostile, replacing, setting, without
from helpers.models import X, Y

import holobind as hb
from holobind.data import Split
from holobind.errors import FileError

pytestmark = pytest.mark.usefixtures("one_thread")
STATE = "network.learning_on."


@functools.cache
def model():
    """With a correction, so that every tensor of the state has elements."""
    fitted = hb.learn(Split(X, Y), hb.ModelConfig(l2=1.0, knn_weight=0.5, update=True))
    return fitted.update(X[:2], [[0], [1]], rejected=[[1], [0, 2]]).forget(labels=[3])


def config(name, to):
    return setting("network", "learning_on", name, to=to)


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


ATTACKS = {
    "levels of another shape": replacing(f"{STATE}levels", lambda t: t[:-1]),
    "levels of another type": replacing(f"{STATE}levels", lambda t: t.to(torch.int32)),
    "levels as a vector": replacing(f"{STATE}levels", lambda t: t.flatten()),
    "scales with NaN": replacing(f"{STATE}scales", lambda t: torch.full_like(t, torch.nan)),
    "negative scales": replacing(f"{STATE}scales", lambda t: -t),
    "largest weights of NaN": replacing(f"{STATE}largest", lambda t: torch.full_like(t, torch.nan)),
    "fewer largest weights": replacing(f"{STATE}largest", lambda t: t[:, 1:]),
    "column of a largest weight out of range": replacing(f"{STATE}largest_columns", lambda t: t + 1),
    "negative column of a largest weight": replacing(f"{STATE}largest_columns", lambda t: t - 1),
    "infinite label weights": replacing(f"{STATE}label_weights", lambda t: t * torch.inf),
    "label weights of 0": replacing(f"{STATE}label_weights", lambda t: t * 0),
    "rejected row out of range": replacing(f"{STATE}rejected_rows", ids(0, 1, 1 << 30)),
    "negative rejected row": replacing(f"{STATE}rejected_rows", ids(-1, 1, 2)),
    "rejected label out of range": replacing(f"{STATE}rejected_labels", ids(0, 1, 1 << 30)),
    "the same rejection twice": replacing(f"{STATE}rejected_rows", ids(0, 0, 0)),
    "free label out of range": replacing(f"{STATE}free_labels", ids(1 << 30)),
    "more rejections than the header has": replacing(f"{STATE}rejected_rows", ids(0, 1, 2, 3)),
    "a header that claims many": config("rejected", 1 << 40),
    "a negative number of free labels": config("free", -1),
    "all labels free": config("free", Y.shape[1]),
    "l2 of 0": config("l2", 0),
    "l2 as text": config("l2", "1"),
    "l2 of NaN": config("l2", float("nan")),
    "l2 as true": config("l2", True),
    "weights that the header denies": config("weights", False),
    "weights as a number": config("weights", 0),
    "an unknown option": config("more", 1),
    "a state that is no object": setting("network", "learning_on", to=[]),
    "a state that the header lacks": lambda header, tensors: header["network"].pop("learning_on"),
    "a tensor that is lacking": without(f"{STATE}label_weights"),
}


@pytest.mark.parametrize("change", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_wrong_state_is_refused_in_one_line(tmp_path, capsys, change):
    path = hostile(tmp_path / "m.safetensors", model(), change)
    with pytest.raises(FileError, match=r"m\.safetensors"):
        hb.load(path)
    assert is_one_line_error(run(capsys, "forget", path, "--rows", "0"), "m.safetensors")


@functools.cache
def model_of_rows():
    """The same without exact weights."""
    fitted = hb.learn(Split(X, Y), hb.ModelConfig(l2=1.0, knn_weight=0.5))
    return fitted.update(X[:2], [[0], [1]], rejected=[[1], [0, 2]]).forget(labels=[3])


@pytest.mark.parametrize(
    "change",
    [
        config("weights", True),
        config("l2", -1),
        config("rejected", 1 << 40),
        replacing(f"{STATE}levels", torch.zeros(3, 4, dtype=torch.int16)),
        replacing(f"{STATE}rejected_rows", ids(0, 1, 1 << 30)),
        replacing(f"{STATE}rejected_labels", ids(0, 1, -1)),
        replacing("network.row_values", lambda t: torch.full_like(t, torch.nan)),
    ],
    ids=["weights that are lacking", "l2", "many rejections", "levels", "rejected row", "rejected label", "NaN rows"],
)
def test_a_wrong_state_without_weights_is_refused_in_one_line(tmp_path, capsys, change):
    path = hostile(tmp_path / "m.safetensors", model_of_rows(), change)
    assert is_one_line_error(run(capsys, "forget", path, "--rows", "0"))


def test_the_file_without_a_change_is_read(tmp_path):
    path = hostile(tmp_path / "m.safetensors", model(), lambda header, tensors: None)
    loaded = hb.load(path)
    assert np.array_equal(loaded.scores(X), model().scores(X)) and loaded.network.free_labels() == [3]
    assert loaded.network.learning_on.rejected_rows.tolist()[-1] == X.shape[0] + 1
