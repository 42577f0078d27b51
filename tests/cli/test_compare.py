"""`holobind compare`: every candidate with the same epochs, the same names in table, JSON and plot."""

import json

import pytest
from helpers.commands import interrupt_training, is_one_line_error, run

import holobind as hb
from holobind import data
from holobind.cli import comparison
from holobind.data import Dataset, Split
from holobind.errors import OptionError


def test_all_trained_candidates_have_the_same_epochs(capsys, feature_data, tmp_path):
    directory = tmp_path / "new" / "place"
    code, out, _ = run(capsys, "compare", feature_data, "--epochs", 4, "--out", directory, "--json")
    found = json.loads(out)
    assert code == 0 and found == json.loads((directory / "compare.json").read_text())
    assert [row["name"] for row in found["rows"]] == list(comparison.CANDIDATES)
    assert [row["epochs"] for row in found["rows"]] == [4, 4, 4, 4, None]
    assert (directory / "compare.png").read_bytes().startswith(b"\x89PNG")
    linear, *_, closed_form = found["rows"]
    assert "linear head" in linear["name"] and linear["output layer"] == 513 * 8
    dataset = data.load(feature_data)
    expected = hb.learn(dataset.train).evaluate(dataset.test, dataset="toy")
    for metric in ("P@1", "PSP@1"):
        assert closed_form[metric] == pytest.approx(expected[metric])


def test_a_head_too_large_for_memory_is_skipped_with_the_reason(capsys, feature_data, tmp_path, monkeypatch):
    learn = comparison.learn

    def refuse_linear(split, config, *arguments, **options):
        if config.head == "linear":
            raise OptionError("a linear head would take 100 GB")
        return learn(split, config, *arguments, **options)

    monkeypatch.setattr(comparison, "learn", refuse_linear)
    code, out, _ = run(capsys, "compare", feature_data, "--epochs", 1, "--out", tmp_path)
    assert code == 0 and "fc, holographic head, softmax" in out and "predict rows/s" in out
    assert "fc, linear head, bce: skipped, because a linear head would take 100 GB" in out


def test_without_a_test_split_a_tenth_of_the_rows_is_held_out(feature_data):
    train = data.load(feature_data).train
    kept, held_out = comparison._train_test(Dataset(train), seed=0)
    assert len(held_out) == len(train) // 10 and len(kept) + len(held_out) == len(train)
    few = Split(train.X[:5], train.Y[:5])
    with pytest.raises(OptionError, match="5 rows are too few to compare on"):
        comparison._train_test(Dataset(few), seed=0)


def test_an_interrupted_comparison_writes_no_file(capsys, feature_data, tmp_path, monkeypatch):
    interrupt_training(monkeypatch, 0, 1)
    code, out, err = run(capsys, "compare", feature_data, "--epochs", 2, "--out", tmp_path)
    assert code == 130 and out == "" and "no file was written" in err and not list(tmp_path.iterdir())


def test_wrong_arguments_are_one_line_errors(capsys, feature_data, tmp_path):
    (tmp_path / "file").touch()
    assert is_one_line_error(run(capsys, "compare", feature_data, "--out", tmp_path / "file"), "--out")
    assert is_one_line_error(run(capsys, "compare", "nothing-here", "--out", tmp_path), "no such file or directory")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
