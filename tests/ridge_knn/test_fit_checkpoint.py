"""A fit that was stopped continues from its checkpoint to the same bytes, and refuses any other one."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers.ridge_knn import rare_words
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from holobind import FileError, _files
from holobind.ridge_knn import _ridge_solvers, fit, fit_ridge_knn, fit_steps, knn_choice, ridge, tree_choice
from holobind.ridge_knn.fit_checkpoint import FitCheckpoint, remove_checkpoint

OPTIONS = {"dim": 24, "update": False}
RUN = {"data": [1, 2]}


class Stopped(Exception):  # noqa: N818 - of this test
    pass


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Blocks of eight columns by conjugate gradients, label trees and no folds, on data of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "MAX_CHOLESKY_UNKNOWNS", 0)
        patch.setattr(_ridge_solvers, "BLOCK_COLUMNS", 8)
        patch.setattr(fit, "MAX_ROWS_FOR_FOLDS", 10)
        patch.setattr(tree_choice, "MIN_ROWS_FOR_TREES", 1)
        patch.setattr(_files, "_synchronise", lambda path: None)  # hundreds of files
        yield


@pytest.fixture(scope="module")
def data():
    return rare_words(n=300, labels=60)


@contextmanager
def counted(monkeypatch, stop_at=None):
    """Count what is computed; raise at the n-th block of columns, or at the n-th of another kind of step."""
    done = {"blocks": 0, "outputs": 0, "trees": 0}

    def counting(kind, function):
        def call(*arguments, **options):
            if stop_at == (kind, done[kind]):
                raise Stopped
            done[kind] += 1
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for module, name, kind in (
            (_ridge_solvers, "conjugate_gradients", "blocks"),
            (fit_steps, "held_out_outputs", "outputs"),
            (fit_steps, "fit_label_tree", "trees"),
        ):
            patch.setattr(module, name, counting(kind, getattr(module, name)))
        yield done


def state(fitted):
    found = {name: tensor.numpy().tobytes() for name, tensor in fitted.network.state_dict().items()}
    return found, fitted.validation, fitted.solution.l2, fitted.trees, fitted.estimate, fitted.near_duplicates


def checkpoint(folder, resume=False, run=RUN):
    return FitCheckpoint(folder, lambda: run, resume=resume, seconds=0)


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    """Metadata and tensors of all files of a checkpoint, by their names."""
    folder = tmp_path_factory.mktemp("stored")
    fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(folder))
    found = {}
    for file in folder.iterdir():
        with safe_open(file, "pt") as opened:
            found[file.name] = opened.metadata(), load_file(file)
    return found


@pytest.mark.parametrize("stop_at", [("blocks", 2), ("blocks", 20), ("outputs", 0), ("trees", 0), ("trees", 3)])
def test_a_stopped_fit_continues_to_the_same_bytes_and_solves_the_rest_only(data, tmp_path, monkeypatch, stop_at):
    with counted(monkeypatch) as whole:
        wanted = state(fit_ridge_knn(*data, **OPTIONS))
    folder = tmp_path / "checkpoint"
    with counted(monkeypatch, stop_at) as first, pytest.raises(Stopped):
        fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(folder))
    with counted(monkeypatch) as second:
        assert state(fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(folder, resume=True))) == wanted
    assert whole["blocks"] > 20 and whole["trees"] == 4
    assert {kind: first[kind] + second[kind] for kind in whole} == whole
    assert first[stop_at[0]] == stop_at[1]
    with counted(monkeypatch) as third:  # all is stored
        assert state(fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(folder, resume=True))) == wanted
    assert not any(third.values())
    remove_checkpoint(folder)
    assert not folder.exists()


def test_results_of_the_first_minute_are_not_stored(data, tmp_path):
    fit_ridge_knn(*data, **OPTIONS, checkpoint=FitCheckpoint(tmp_path / "checkpoint", lambda: RUN))
    assert not list(tmp_path.iterdir())


def test_without_resume_a_checkpoint_is_removed(data, tmp_path):
    fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path))
    (tmp_path / "mine.txt").write_text("kept")
    assert len(list(tmp_path.iterdir())) > 5
    FitCheckpoint(tmp_path, lambda: RUN)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_checkpoint_of_another_run_is_refused_and_kept(data, tmp_path):
    fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FileError, match="is of a run with other data, options or number of processes"):
        checkpoint(tmp_path, resume=True, run={"data": [1, 3]})
    assert sorted(tmp_path.iterdir()) == before


def test_files_without_their_run_are_not_used(data, tmp_path, monkeypatch):
    fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path))
    (tmp_path / "run.safetensors").unlink()
    with counted(monkeypatch) as done:
        fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path, resume=True))
    assert done["blocks"] > 20


def test_the_stored_blocks_of_a_search_make_place_for_its_result(data, tmp_path):
    fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path))
    names = {file.name for file in tmp_path.iterdir()}
    assert "search.safetensors" in names and not any(name.startswith("search-") for name in names)


DAMAGES = {
    "kept-0-0-0-0-8.0": [
        lambda t: t | {"columns": t["columns"][:-1]},
        lambda t: t | {"columns": t["columns"] * np.nan},
        lambda t: t | {"columns": t["columns"].to(torch.int32)},
        lambda t: {"columns": t["columns"]},
        lambda t: t | {"more": t["columns"] + 1},
    ],
    "kept-0-0-outputs": [
        lambda t: {name: tensor for name, tensor in t.items() if name != "linear"},
        lambda t: {name: tensor for name, tensor in t.items() if name != "residuals 0.5 8.0"},
        lambda t: t | {"nearest": t["nearest"][:3]},
        lambda t: t | {"linear": t["linear"][:, :3].contiguous()},
    ],
    "tree-kept_0": [
        lambda t: t | {"features": t["features"] + 10**6},
        lambda t: t | {"entry_children": t["entry_children"] | 128},
        lambda t: t | {"leaf_labels": t["leaf_labels"][:-1]},
    ],
}


@pytest.mark.parametrize(("name", "i"), [(name, i) for name, changes in DAMAGES.items() for i in range(len(changes))])
def test_a_damaged_file_is_refused_in_one_line(data, stored, tmp_path, name, i):
    for file, (metadata, tensors) in stored.items():
        save_file(
            DAMAGES[name][i](dict(tensors)) if file == f"{name}.safetensors" else tensors, tmp_path / file, metadata
        )
    with pytest.raises(FileError, match="is damaged") as error:
        fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path, resume=True))
    assert name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [('"n_levels": ', '"n_levels": 1'), ('"parents": ', '"parents": 2147483'), ('"leaves"', '"more"')]
)
def test_sizes_of_a_tree_that_its_tensors_do_not_have_are_refused(data, stored, tmp_path, change):
    for file, (metadata, tensors) in stored.items():
        changed = {name: text.replace(*change) for name, text in metadata.items()}
        save_file(tensors, tmp_path / file, changed if file.startswith("tree") else metadata)
    with pytest.raises(FileError, match="is damaged"):
        fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path, resume=True))


@pytest.mark.parametrize("steps", ["[]", "[[0.3]]", '[["a", 1.0]]', "[[0.3, -1.0]]", "[[0.3, NaN]]", "3", "null"])
def test_a_search_without_a_penalty_is_refused(data, stored, tmp_path, steps):
    text = stored["search.safetensors"][0]["holobind"]
    first = text.index('"steps": ') + len('"steps": ')
    changed = text[:first] + steps + text[text.index(', "validation"') :]
    for file, (other, of_file) in stored.items():
        save_file(of_file, tmp_path / file, {"holobind": changed} if file == "search.safetensors" else other)
    with pytest.raises(FileError, match="is damaged"):
        fit_ridge_knn(*data, **OPTIONS, checkpoint=checkpoint(tmp_path, resume=True))


def test_outputs_of_held_out_rows_are_the_same_from_their_tensors(data):
    Y = data[1]
    tensors = {"linear": torch.randn(300, 24), "nearest": torch.rand(300).double(), "forest": torch.randn(300, 24)}
    tensors |= {
        f"residuals {idf} {power}": torch.randn(300, 24) for idf in (0.0, 0.5) for power in (1.0, 2.0, 4.0, 8.0)
    }
    tensors["forest residuals 0.5"] = torch.randn(300, 24)
    found = knn_choice.HeldOutOutputs.of_tensors(Y, 24, True, tensors).tensors()
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name]) for name in tensors)
