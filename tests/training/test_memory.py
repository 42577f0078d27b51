"""Training in a bounded memory: what fits, what is left out, and rows in files."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind.data import csr
from holobind.data.csr import checked_csr, normalise_rows, normalise_rows_in_file
from holobind.errors import DataError, OptionError
from holobind.ridge_knn import ridge
from holobind.training.allowed_values import parse_bytes
from holobind.training.config import ModelConfig
from holobind.training.memory import plan_memory


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "points"
    hb.data.write(hb.data.synthetic("eurlex-4k", scale=0.05), folder)
    return folder


@pytest.mark.parametrize(
    ("text", "wanted"), [("2GB", 2 * 10**9), ("512MB", 512 * 10**6), ("1.5 TB", 15 * 10**11), ("300000 kB", 3 * 10**8)]
)
def test_sizes_have_units(text, wanted):
    assert parse_bytes(text) == wanted and hb.TrainConfig(memory=text).memory_bytes == wanted


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "2 GBit", "1e3GB", "100MB", "2GB\n2GB", "٣GB", 2])
def test_other_sizes_are_refused(text):
    with pytest.raises(OptionError, match="such as 2GB or 512MB"):
        hb.TrainConfig(memory=text)


def test_rows_in_files_train_the_model_of_rows_in_memory(folder, monkeypatch):
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 5000)  # in memory as well, so that sums have one order
    in_memory, in_file = (hb.data.load(folder, memory_map=mapped).train for mapped in (False, True))
    assert csr.is_mapped(in_file.X) and not csr.is_mapped(in_memory.X)
    config = ModelConfig(dim=64, label_trees=1)
    # Without a bound of memory, a model may keep the state of updates as well, and its weights are then other ones.
    alone, bounded = (hb.learn(split, config, hb.TrainConfig(memory="1GB")) for split in (in_memory, in_file))
    for name, tensor in alone.network.state_dict().items():
        assert torch.equal(tensor, bounded.network.state_dict()[name]), name
    assert bounded.metadata["config"]["memory"] == "1GB" and "memory notes" not in bounded.metadata


def test_a_bounded_training_says_which_way_it_solved_and_what_both_were_estimated_to_take(folder, monkeypatch):
    monkeypatch.setattr(ridge, "MAX_CHOLESKY_UNKNOWNS", 0)
    split, config = hb.data.load(folder).train, ModelConfig(dim=64, label_trees=0)
    found = hb.learn(split, config, hb.TrainConfig(memory="1GB")).metadata
    (note,) = found["memory notes"]
    assert (
        f"({found['ridge']['system']}): estimated seconds of one processor" in note and "with the Gram matrix" in note
    )
    assert "memory notes" not in hb.learn(split, config).metadata


def test_rows_of_norm_1_in_a_file_are_those_in_memory(folder, monkeypatch):
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 700)
    X = hb.data.load(folder, memory_map=True).train.X
    found = normalise_rows_in_file(X)
    assert csr.is_mapped(found)
    wanted = normalise_rows(hb.data.load(folder).train.X)
    np.testing.assert_array_equal(found.data, wanted.data)
    np.testing.assert_array_equal(found.indices, wanted.indices)


def test_memory_of_a_mapped_matrix_is_given_back_and_its_values_stay(folder):
    X = normalise_rows_in_file(hb.data.load(folder, memory_map=True).train.X)
    before = X.toarray()
    csr.free_memory(X)
    np.testing.assert_array_equal(X.toarray(), before)
    in_memory = hb.data.load(folder).train.X
    csr.free_memory(in_memory)  # nothing to give back
    np.testing.assert_array_equal(normalise_rows(in_memory).toarray(), before)


@pytest.mark.parametrize(("at", "value"), [(700, 10**6), (701, -1)])
def test_a_wrong_id_in_a_mapped_matrix_is_found(folder, monkeypatch, at, value):
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 600)
    X = hb.data.load(folder).train.X
    ids = csr.scratch_array(X.nnz, np.int32)
    ids[:] = X.indices
    assert checked_csr(csr.from_arrays(X.data, ids, X.indptr, X.shape), "X").has_canonical_format
    ids[at] = value
    with pytest.raises(DataError, match="outside of its"):
        checked_csr(csr.from_arrays(X.data, ids, X.indptr, X.shape), "X")


def test_ids_that_repeat_in_a_mapped_matrix_are_summed(folder, monkeypatch):
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 600)
    X = hb.data.load(folder).train.X
    ids = csr.scratch_array(X.nnz, np.int32)
    ids[:] = X.indices
    row = int(np.flatnonzero(np.diff(X.indptr) > 1)[-1])
    ids[X.indptr[row] + 1] = ids[X.indptr[row]]
    checked = checked_csr(csr.from_arrays(X.data, ids, X.indptr, X.shape), "X")
    assert checked.nnz == X.nnz - 1 and checked.has_canonical_format


def test_what_does_not_fit_is_left_out_and_the_weights_must_fit(folder):
    X = hb.data.load(folder).train.X
    roomy, config = plan_memory(10**9, X, 64, ModelConfig()), ModelConfig()
    assert roomy.config == config and not roomy.notes
    many = SimpleNamespace(shape=(1, 50), indptr=np.array([0, 10**8]))
    small = plan_memory(10**9, many, 64, config)
    assert small.config.knn_weight == 0 and small.config.label_trees == 0 and "kNN step" in small.notes[0]
    updatable = plan_memory(
        10**9, SimpleNamespace(shape=(10**6, 50), indptr=np.array([0, 10])), 512, ModelConfig(update=True)
    )
    assert updatable.config.update is False and "an update needs takes about 2.0 GB" in updatable.notes[0]
    assert plan_memory(10**9, X, 64, ModelConfig(update=True)).config.update
    with pytest.raises(OptionError, match=r"give at least 0\.9\dGB, or take a smaller dim"):
        plan_memory(5 * 10**8, X, 500_000, config)


def test_texts_in_files_train_the_model_of_texts_in_memory(tmp_path, capsys):
    path = tmp_path / "train.jsonl"
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 30, (300, 5)).tolist()
    lines = [{"text": " ".join(f"word{i} and{i}" for i in row), "labels": [f"label {row[0]}"]} for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, printed, _ = run(capsys, "train", path, "--memory", "1GB", "--out", tmp_path / "b.safetensors", "--json")
    found = json.loads(printed)
    assert code == 0 and found["notes"][0].startswith("tf-idf of 300 texts in one pass: ")
    bounded = hb.load(tmp_path / "b.safetensors")
    dataset = hb.data.load(path)
    config, memory = ModelConfig(), hb.TrainConfig(memory="1GB")
    alone = hb.learn(dataset.train, config, memory, label_names=dataset.label_names, tfidf=dataset.tfidf)
    for name, tensor in alone.network.state_dict().items():
        assert torch.equal(tensor, bounded.network.state_dict()[name]), name
    assert bounded.label_names == alone.label_names and bounded.tfidf.words == alone.tfidf.words


def test_the_command_takes_a_memory(folder, tmp_path, capsys):
    out = tmp_path / "model.safetensors"
    code, printed, _ = run(capsys, "train", folder, "--memory", "1GB", "--out", out, "--json")
    assert code == 0 and json.loads(printed)["path"] == str(out) and out.exists()
    small = run(capsys, "train", folder, "--memory", "500MB", "--dim", 200_000, "--out", tmp_path / "other.safetensors")
    assert is_one_line_error(small, "too little for", "give at least", "or take a smaller dim")
