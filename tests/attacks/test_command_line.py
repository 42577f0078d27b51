"""Mistakes and mishaps of a shell: each ends with its exit code and at most one line, never with a traceback."""

import contextlib
import os
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
INTERRUPT_SECONDS = (0.02, 0.3, 0.8, 1.5)  # after the start of `main`

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


@pytest.fixture(scope="module")
def shells():
    """All of them, side by side: most of their time is the start of an interpreter."""
    script = "set -o pipefail; export PYTHONIOENCODING=ascii:strict; "
    return {
        name: subprocess.Popen(
            ["bash", "-c", f"{script}{HOLOBIND} {rest}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name, (rest, _, _) in SHELL.items()
    }


@pytest.mark.parametrize("name", SHELL)
def test_a_mishap_of_a_stream(shells, name):
    _, code, text = SHELL[name]
    _, err = shells[name].communicate(timeout=120)
    assert shells[name].returncode == code, err
    assert err.count("\n") == bool(text) and text in err


@pytest.mark.parametrize("seconds", INTERRUPT_SECONDS)
def test_an_interrupt_at_any_time_gives_130_and_no_traceback(seconds):
    """While typer is imported, while torch is imported, while standard input is read."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import holobind.cli.main as m; print(flush=True); m.main()", "ask"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "holobind: stopped" in err


BAR_AND_INTERRUPT = """
import sys, time
from holobind.cli import main as cli
from holobind.cli import terminal
terminal.PROGRESS_DELAY_SECONDS = 0.0

def work():
    with terminal.progress() as report:
        while True:
            report("working hard", 0.5)
            time.sleep(0.01)

cli._run = work
cli.main()
"""


def test_an_interrupt_of_a_visible_progress_bar_gives_130(tmp_path):
    """On a terminal of its own: the bar is drawn by a thread, and ends with the command."""
    ours, its = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", BAR_AND_INTERRUPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=its,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(its)
    shown = b""
    while b"working hard" not in shown:
        shown += os.read(ours, 1 << 16)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # which is how a terminal ends on Linux
        while more := os.read(ours, 1 << 16):
            shown += more
    os.close(ours)
    assert process.wait(60) == 130
    assert b"Traceback" not in shown and shown.count(b"holobind: stopped") == 1
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is visible again


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder with a dataset, `data`, and a model, `model`."""
    folder = tmp_path_factory.mktemp("toy")
    data.write(data.synthetic("bibtex", scale=0.05), folder / "data")
    hb.learn(data.load(folder / "data").train, hb.ModelConfig(l2=1.0)).save(folder / "model")
    (folder / "wide.txt").write_text("2 16777216 16777216\n0 0:1\n1 1:1\n")
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
    ("train {}/model --out {}/new", "model:1"),
    ("train {}/missing --out {}/new", "no such file"),
    ("train {}/data --dim 1000000000000 --out {}/new", "dim must be a whole number from 1 to 2^28"),
    ("train {}/data --dim 200000000 --out {}/new", "take a smaller dim"),
    ("train {}/data --dim 200000000 --knn-weight 0 --out {}/new", "take a smaller dim"),
    ("train {}/data --network fc --hidden 200000000,200000000 --out {}/new", "take a smaller dim, hidden"),
    ("train {}/wide.txt --dim 2048 --out {}/new", "34,359,738,368 weights"),
    ("train {}/wide.txt --knn-weight 0 --out {}/new", "take a smaller dim"),
    ("train {}/wide.txt --network fc --out {}/new", "and the optimiser's state take"),
    (f"train {{}}/data --dim {MANY_DIGITS[:4000]} --out {{}}/new", "dim must be"),
    (f"train {{}}/data --network fc --metric P@{MANY_DIGITS} --out {{}}/new", "metric must be"),
    ("train {}/data --seed 9999999999999999999999 --out {}/new", "seed must be"),
    ("train {}/data --l2 nan --out {}/new", "l2 must be a positive number"),
    ("train {}/data --knn-weight 1e300 --out {}/new", "knn_weight must be"),
    ("train {}/data --word-vectors none --out {}/new", "word_vectors belongs to network cnn and lstm"),
    ("train {}/data --network fc --filters 3 --out {}/new", "filters belongs to network cnn"),
    ("compare {}/missing --out {}", "no such file"),
    ("compare {}/model --out {}", "model:1"),
    ("compare {}/data --out {}/model", "cannot be made a directory"),
    ("compare {}/data --out {} --epochs 0", "--epochs"),
    ("compare {}/data --out {} --time-limit -1", "--time-limit"),
    ("compare {}/data --out {} --seed 9999999999999999999999", "seed must be"),
    ("data convert {}/missing {}/new", "no such file"),
    ("data convert {}/data {}/data", "already exists"),
    ("data convert {}/data {}/model", "already exists"),
    ("data convert {}/data {}/new --to pickle", "format 'pickle' is unknown"),
    ("data convert {}/data {}/new --compression rar", "compression 'rar' is unknown"),
    ("data convert {}/data {}/new.jsonl", "one file, and this dataset has a test split"),
    ("data convert {}/data {}/new --to jsonl", "texts"),
    ("data convert {}/data/train.txt {}/data/train.txt", "the same file as"),
    ("data convert {}/data {}/model/new", "model/new: "),
    ("data fetch nonsense", "'nonsense'"),
    ("data fetch bibtex --file {}/missing", "no such file"),
    ("data fetch bibtex --url http://example.org/x.zip", "is not encrypted"),
    ("data fetch bibtex --url nonsense", "begins with https"),
    ("data fetch bibtex --file {}/model --url https://example.org/x.zip", "give a file or an address, not both"),
    ("data fetch bibtex --max-download x", "write it like"),
    ("data make synthetic nonsense --out {}/new", "'nonsense'"),
    ("data make synthetic bibtex --scale nan --out {}/new", "scale"),
    ("data make synthetic bibtex --scale 1e9 --out {}/new", "take a smaller scale"),
    ("data make synthetic bibtex --scale -1 --out {}/new", "scale"),
    ("data make synthetic bibtex --scale 0.01 --seed -1 --out {}/new", "seed"),
    ("data make synthetic bibtex --scale 0.01 --out {}/data", "already exists"),
    ("data make synthetic bibtex --scale 0.01 --out {}/new --to pickle", "format 'pickle' is unknown"),
    ("data make python-calls --packages no_such_package --out {}/new", "is not installed"),
    ("data make python-calls --packages a.b --out {}/new", "without dots"),
    ("data make python-calls --packages typer --out {}/data", "already exists"),
    ("train {}/missing --epochs 3 --out {}/new", "no such file"),  # and no line about options without effect
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
