"""The same seed, data and threads give the same bytes, in processes with other clocks, hash seeds and interruptions."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers.commands import interrupt_training, is_one_line_error, run

import holobind as hb
from holobind import data
from holobind.cli import main as cli

N_TEXTS = 120
SMALL = ("--epochs", "2", "--batch-size", "32")
FC = ("--network", "fc", "--hidden", "8", *SMALL)
RUNS = {
    "default": (),
    "linear": ("--network", "linear"),
    "fc": FC,
    "fc from ridge": (*FC, "--linear-skip"),
    "linear head": (*FC, "--head", "linear"),
    "cnn": ("--network", "cnn", "--hidden", "8", "--embedding-dim", "8", "--filters", "4", *SMALL),
    "lstm": ("--network", "lstm", "--hidden", "8", "--embedding-dim", "8", "--hidden-size", "6", *SMALL),
}
TIMINGS = {"seconds", "rows per second", "timings"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Texts with names of labels, so that vocabularies and tokenizers are in the file as well."""
    folder = tmp_path_factory.mktemp("attack") / "calls"
    whole = data.python_calls(["typer"])
    train, test = (replace(part, X=part.X[:N_TEXTS], Y=part.Y[:N_TEXTS], texts=part.texts[:N_TEXTS])
                   for part in (whole.train, whole.test))  # fmt: skip
    data.write(replace(whole, train=train, test=test), folder, "jsonl")
    return folder


SCRIPT = """
import contextlib, json, sys
from holobind.cli.main import main
runs, data = sys.argv[1:]
for name, options in json.loads(runs).items():
    sys.argv = ["holobind", "train", data, *options, "--out", name]
    with contextlib.suppress(SystemExit):
        main()
"""


@pytest.fixture(scope="module")
def twins(dataset, tmp_path_factory, one_thread):
    """Two folders of the same models: by a process with a hash seed of its own, and by this one."""
    folders = [tmp_path_factory.mktemp("twin") for _ in range(2)]
    environment = os.environ | {"PYTHONHASHSEED": "1234", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(RUNS), dataset]
    subprocess.run(command, cwd=folders[0], env=environment, check=True, timeout=300)
    for name, options in RUNS.items():
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr(sys, "argv", ["holobind", "train", str(dataset), *options, "--out", str(folders[1] / name)])
            cli.main()
    return folders


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_write_the_same_bytes(twins, name):
    one, other = ((folder / name).read_bytes() for folder in twins)
    assert one == other


def keys(value):
    if isinstance(value, dict):
        return set(value) | keys(list(value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("options", [RUNS["default"], RUNS["fc from ridge"]], ids=["default", "fc from ridge"])
def test_timings_are_in_their_own_file_only(capsys, dataset, tmp_path, options):
    arguments = ("--out", tmp_path / "m", "--timings", tmp_path / "t")
    assert run(capsys, "train", dataset, *options, *arguments)[0] == 0
    assert not keys(hb.load(tmp_path / "m").metadata) & TIMINGS
    timings = json.loads((tmp_path / "t").read_text())
    assert timings["in all"] >= timings["training"] >= timings["ridge"] >= 0
    if options:
        assert [set(epoch) for epoch in timings["epochs"]] == [{"seconds", "rows per second"}] * 2


def test_an_interrupted_and_resumed_run_writes_the_same_bytes(capsys, dataset, tmp_path):
    command = ("train", dataset, *FC, "--dropout", 0.2, "--out")
    assert run(capsys, *command, tmp_path / "whole")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_training(patch, 1, 3)
        assert run(capsys, *command, tmp_path / "m")[0] == 130
    assert run(capsys, *command, tmp_path / "m", "--resume")[0] == 0
    assert (tmp_path / "m").read_bytes() == (tmp_path / "whole").read_bytes()


# Resumed runs with other data or options


def another_value(lines):
    """One value of one feature, in the last row."""
    head, _, value = lines[-1].rpartition(":")
    lines[-1] = f"{head}:{float(value) + 0.5:g}"


def another_feature(lines):
    """One feature of one row, with the same value."""
    n_features = int(lines[0].split()[1])
    for i, line in enumerate(lines[1:], 1):
        labels, *features = line.split(" ")
        ids = [int(feature.split(":")[0]) for feature in features]
        if unused := sorted(set(range(n_features)) - set(ids)):
            features[0] = f"{unused[0]}:{features[0].split(':')[1]}"
            lines[i] = " ".join([labels, *sorted(features, key=lambda feature: int(feature.split(":")[0]))])
            return


def another_order_of_rows(lines):
    lines[1], lines[2] = lines[2], lines[1]


def features_of_other_rows(lines):
    """The labels, and all numbers of entries, stay as they are."""
    (one, *first), (other, *second) = lines[1].split(" "), lines[2].split(" ")
    lines[1], lines[2] = " ".join([one, *second]), " ".join([other, *first])


@pytest.mark.parametrize(
    "attack",
    [another_value, another_feature, another_order_of_rows, features_of_other_rows],
    ids=lambda attack: attack.__name__,
)
def test_a_run_is_not_resumed_with_other_features(capsys, tmp_path, attack):
    made = data.synthetic("bibtex", scale=0.1)
    file = tmp_path / "rows.txt"
    data.write(data.Dataset(made.train), file)
    command = ("train", file, *FC, "--out", tmp_path / "m")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_training(patch, 1, 3)
        assert run(capsys, *command)[0] == 130
    checkpoint = (tmp_path / "m.checkpoint").read_bytes()
    text = file.read_text()
    lines = text.splitlines()
    attack(lines)
    assert lines != text.splitlines()
    file.write_text("\n".join(lines) + "\n")
    assert is_one_line_error(run(capsys, *command, "--resume"), "other data or options")
    assert (tmp_path / "m.checkpoint").read_bytes() == checkpoint and not (tmp_path / "m").exists()
    file.write_text(text)
    assert run(capsys, *command, "--resume")[0] == 0


@pytest.mark.parametrize("what", ["text", "option"])
def test_a_run_is_not_resumed_with_other_texts_or_options(capsys, tmp_path, what):
    """Two words of equal frequency change places in one text: numbers of tokens and of texts stay as they are."""
    records = [{"text": f"alpha beta gamma{i % 5} delta", "labels": [str(i % 3)]} for i in range(200)]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = ("--network", "cnn", "--hidden", 8, "--embedding-dim", 8, "--filters", 4, *SMALL)
    command = ("train", file, *options, "--out", tmp_path / "m")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_training(patch, 1, 3)
        assert run(capsys, *command)[0] == 130
    change = ()
    if what == "text":
        records[7]["text"] = "beta alpha gamma2 delta"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        change = ("--dropout", 0.3)
    assert is_one_line_error(run(capsys, *command, *change, "--resume"), "other data or options")
