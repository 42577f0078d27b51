"""Mistakes and mishaps of a shell: each ends with its exit code and at most one line, never with a traceback."""

import random
import signal
import subprocess
import sys
import time

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import data
from holobind.cli import main as cli

HOLOBIND = f"{sys.executable} -m holobind"
ASK = "ask red*cat --query red"
MANY_DIGITS = "9" * 5000
INTERRUPTIONS = 6

# (the rest of the command, in a shell; exit code; text on stderr, where "" stands for nothing at all)
SHELL = {
    "full": (f"{ASK} > /dev/full", 2, "No space left on device"),
    "full, table": ("--help > /dev/full", 2, "No space left on device"),
    "full stderr": ("ask 'red*(cat' 2> /dev/full", 2, ""),
    "closed stdout": (f"{ASK} >&-", 2, "standard output is closed"),
    "closed stderr": ("ask 'red*(cat' 2>&-", 2, ""),
    "closed stdin": ("ask <&-", 0, "End a query with ?"),
    "broken pipe": (f"{ASK} | true", 141, ""),
    "broken pipe, table": ("--help | true", 141, ""),
    "ascii terminal": (f"{ASK}", 0, ""),
}


@pytest.mark.parametrize("name", SHELL)
def test_a_mishap_of_a_stream(name):
    rest, code, text = SHELL[name]
    script = f"set -o pipefail; export PYTHONIOENCODING=ascii:strict; {HOLOBIND} {rest}"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == code, found.stderr
    assert found.stderr.count("\n") == bool(text) and text in found.stderr


def test_an_interrupt_at_any_time_gives_130_and_no_traceback():
    """Random times in a fixed range: imports of typer, imports of torch, reading standard input."""
    draw = random.Random(5)
    for _ in range(INTERRUPTIONS):
        process = subprocess.Popen(
            [sys.executable, "-c", "import holobind.cli.main as m; print(flush=True); m.main()", "ask"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        time.sleep(0.02 + draw.random() * 1.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "Traceback" not in err and "holobind: stopped" in err


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder with a dataset, `data`, and a model, `model`."""
    folder = tmp_path_factory.mktemp("toy")
    data.write(data.synthetic("bibtex", scale=0.05), folder / "data")
    hb.learn(data.load(folder / "data").train, hb.ModelConfig(l2=1.0)).save(folder / "model")
    return folder


# Arguments, where {} is the folder; text of the error.
MISTAKES = [
    ("ask a*b --dim 1000000000000", "take a smaller dim"),
    (f"ask a*b --dim {MANY_DIGITS}", "--dim"),
    ("ask a*b --dim -1", "--dim"),
    (f"ask a*b --seed {MANY_DIGITS[:4000]}", "seed must be a whole number"),
    ("ask 1.0e40*a*b --has a*b", "a weight must be at most"),
    ('ask "\udcff"*b --query b', "printable characters"),
    ("ask \udcff*b --query b", "expected a name"),
    (f"ask {'x' * 5000}*b --query b", "printable characters"),
    ("ask a --query b --vocabulary {}/model", "holds 'model', not a vocabulary"),
    ("ask a --query b --vocabulary {}", "is not a file"),
    (f"inspect {'x' * 5000}", "File name too long"),
    ("inspect {}/data", "is not a file"),
    ("inspect {}/\x1b[31m", "\\x1b[31m is not a file"),
    ("evaluate {}/data {}/model", "is not a file"),
    ("predict {}/model {}/data/test.txt --threshold nan", "--threshold must be a number"),
    ("train {}/model --out {}/new", "expected lines like"),
    ("train {}/missing --out {}/new", "no such file"),
    ("train {}/data --dim 1000000000000 --out {}/new", "dim must be a whole number from 1 to 2^28"),
    ("train {}/data --dim 200000000 --out {}/new", "take a smaller dim"),
    ("train {}/data --dim 200000000 --knn-weight 0 --out {}/new", "take a smaller dim"),
    ("train {}/data --network fc --hidden 200000000,200000000 --out {}/new", "take a smaller dim, hidden"),
    (f"train {{}}/data --dim {MANY_DIGITS[:4000]} --out {{}}/new", "dim must be"),
    (f"train {{}}/data --network fc --metric P@{MANY_DIGITS} --out {{}}/new", "metric must be"),
    ("train {}/data --seed 9999999999999999999999 --out {}/new", "seed must be"),
    ("train {}/data --l2 nan --out {}/new", "l2 must be a positive number"),
    ("train {}/data --knn-weight 1e300 --out {}/new", "knn_weight must be"),
    ("train {}/data --word-vectors none --out {}/new", "word_vectors belongs to network cnn and lstm"),
    ("train {}/data --network fc --filters 3 --out {}/new", "filters belongs to network cnn"),
    ("paper capacity --seed 9999999999999999999999", "--seed"),
    ("paper compression --out {}/model", "cannot be made a folder"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES, ids=[m[0][:40].encode("ascii", "replace") for m in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(capsys, toy, arguments, text):
    before = sorted(toy.rglob("*"))
    assert is_one_line_error(run(capsys, *(word.replace("{}", str(toy)) for word in arguments.split(" "))), text)
    assert sorted(toy.rglob("*")) == before


def test_options_without_effect_are_named(capsys, toy, tmp_path):
    code, _, err = run(capsys, "train", toy / "data", "--l2", 1, "--epochs", 3, "--warmup", 0, "--out", tmp_path / "m")
    assert code == 0 and err.count("\n") == 1 and "no effect of --epochs, --warmup" in err


def test_a_line_of_input_is_bounded(capsys):
    code, _, err = run(capsys, "ask", stdin=b"x" * 200_000)
    assert code == 2 and "more than 100,000 characters" in err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (PermissionError(13, "Permission denied", "there"), 2, "Permission denied: there"),
        (MemoryError("Unable to allocate 7 TiB"), 2, "not enough memory (Unable to allocate 7 TiB)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "not enough memory"),
        (KeyboardInterrupt(), 130, "stopped"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
)
def test_every_refusal_of_the_system_has_its_exit_code(capsys, monkeypatch, error, code, text):
    monkeypatch.setattr(cli, "_run", lambda: (_ for _ in ()).throw(error))
    found, out, err = run(capsys)
    assert (found, out, err.count("\n")) == (code, "", bool(text)) and text in err


@pytest.mark.parametrize("bug", [ValueError("a bug"), RuntimeError("a bug"), FileNotFoundError(2, "a bug"), KeyError()])
def test_a_bug_keeps_its_traceback(monkeypatch, bug):
    monkeypatch.setattr(cli, "_run", lambda: (_ for _ in ()).throw(bug))
    with pytest.raises(type(bug)):
        cli.main()
