"""Nothing of the user's is lost: outputs that are inputs, other outputs, links, pipes or devices; failures midway."""

import contextlib
import gzip
import json
import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.child import run_child
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import _files, _storage, data

FC = ("--network", "fc", "--hidden", "8", "--epochs", "2", "--batch-size", "32")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A small dataset in a directory, with names of labels and features."""
    folder = tmp_path_factory.mktemp("attack") / "toy"
    made = data.synthetic("bibtex", scale=0.05)
    data.write(replace(made, label_names=[f"label {i}" for i in range(made.n_labels)]), folder)
    return folder


@pytest.fixture
def copy(dataset, tmp_path):
    """A copy of it that an attack may harm."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for file in dataset.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def model(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("attack") / "m.safetensors"
    hb.learn(data.load(dataset).train, hb.ModelConfig(l2=1.0)).save(path)
    return path


@pytest.fixture
def rows(dataset, tmp_path):
    """Lines to predict."""
    path = tmp_path / "rows.txt"
    path.write_bytes(b"".join((dataset / "test.txt").read_bytes().splitlines(keepends=True)[1:20]))
    return path


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def the_file_itself(path):
    return path


def a_symbolic_link(path):
    link = path.with_name("symbolic")
    link.symlink_to(path.name)
    return link


def a_chain_of_links(path):
    link = path.with_name("chain")
    link.symlink_to(a_symbolic_link(path))
    return link


def a_hard_link(path):
    path.with_name("hard").hardlink_to(path)
    return path.with_name("hard")


def a_detour(path):
    return path.parent / ".." / path.parent.name / path.name


ALIASES = [the_file_itself, a_symbolic_link, a_chain_of_links, a_hard_link, a_detour]


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_predict_does_not_write_over_its_input(capsys, model, rows, alias):
    out = alias(rows)
    before = contents(rows.parent)
    result = run(capsys, "predict", model, rows, "--out", out)
    assert is_one_line_error(result, f"--out {out} is the same file as the input {rows}; choose another path")
    assert contents(rows.parent) == before


@contextlib.contextmanager
def standard_stream(number, file):
    """Let a standard stream of this process be a file."""
    before = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(before, number)
        os.close(before)


def test_predict_does_not_write_over_its_standard_input(capsys, model, rows):
    before = contents(rows.parent)
    with rows.open("rb") as file, standard_stream(0, file):
        result = run(capsys, "predict", model, "-", "--out", rows)
    assert is_one_line_error(result, "the same file as the input standard input")
    assert contents(rows.parent) == before


def test_predict_does_not_write_over_its_model(capsys, model, rows):
    before = model.read_bytes()
    assert is_one_line_error(run(capsys, "predict", model, rows, "--out", model), "the same file as the input")
    assert model.read_bytes() == before


@pytest.mark.parametrize("option", ["--out", "--log", "--plot", "--timings"])
@pytest.mark.parametrize("name", ["train.txt", "test.txt", "labels.txt"])
def test_train_does_not_write_over_its_data(capsys, copy, tmp_path, option, name):
    before = contents(copy)
    arguments = (*FC, "--out", tmp_path / "m", option, copy / name)
    assert is_one_line_error(run(capsys, "train", copy, *arguments), f"{option} {copy / name} is the same file")
    assert contents(copy) == before and sorted(f.name for f in tmp_path.iterdir()) == ["toy"]


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_train_does_not_write_over_a_data_file_by_another_name(capsys, copy, alias):
    out = alias(copy / "train.txt")
    before = contents(copy)
    assert is_one_line_error(run(capsys, "train", copy / "train.txt", "--out", out), "is the same file as the input")
    assert contents(copy) == before


def test_train_does_not_write_over_the_labels_that_belong_to_a_file(capsys, dataset, tmp_path):
    data.convert(dataset, tmp_path / "npz", "npz")
    labels = tmp_path / "npz" / "Y.trn.npz"
    before = labels.read_bytes()
    result = run(capsys, "train", labels.with_name("X.trn.npz"), "--out", labels)
    assert is_one_line_error(result, f"the input {labels}") and labels.read_bytes() == before


def test_a_checkpoint_does_not_replace_the_data(capsys, copy):
    source = (copy / "train.txt").rename(copy / "m.checkpoint")
    before = source.read_bytes()
    result = run(capsys, "train", source, *FC, "--resume", "--out", copy / "m")
    assert is_one_line_error(result, "the checkpoint", "is the same file as the input")
    assert source.read_bytes() == before


def test_a_model_next_to_the_data_is_written_and_replaced(capsys, copy):
    for seed in (0, 1):
        assert run(capsys, "train", copy, "--l2", 1, "--seed", seed, "--out", copy / "model.safetensors")[0] == 0
    assert hb.load(copy / "model.safetensors").metadata["config"]["seed"] == 1


@pytest.mark.parametrize(
    ("one", "other"), [("--out", "--log"), ("--out", "--plot"), ("--log", "--plot"), ("--plot", "--timings")]
)
def test_two_outputs_are_two_files(capsys, dataset, tmp_path, one, other):
    (tmp_path / "link").symlink_to("x")
    result = run(capsys, "train", dataset, *FC, one, tmp_path / "x", other, tmp_path / "link")
    assert is_one_line_error(result, f"{other} {tmp_path / 'link'} is the same file as {one} {tmp_path / 'x'}")
    assert [file.name for file in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("name", ["m.checkpoint", "m.lock"])
def test_an_output_does_not_have_the_name_of_the_checkpoint_or_the_lock(capsys, dataset, tmp_path, name):
    result = run(capsys, "train", dataset, *FC, "--out", tmp_path / "m", "--log", tmp_path / name)
    assert is_one_line_error(result, "is the same file as --log") and not list(tmp_path.iterdir())


def test_compare_does_not_write_over_its_data(capsys, copy):
    folder = copy.parent / "found"
    folder.mkdir()
    (folder / "compare.json").symlink_to(copy / "train.txt")
    before = contents(copy)
    result = run(capsys, "compare", copy / "train.txt", "--epochs", 1, "--out", folder)
    assert is_one_line_error(result, "is the same file as the input") and contents(copy) == before


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_convert_does_not_write_over_its_source(capsys, copy, alias):
    source = copy / "train.txt"
    target = alias(source)
    if target.suffix != ".txt":
        target = target.rename(target.with_suffix(".txt"))
    before = contents(copy)
    result = run(capsys, "data", "convert", source, target)
    assert is_one_line_error(result, "is the same file as the input") and contents(copy) == before
    (copy / "test.txt").unlink()
    assert is_one_line_error(run(capsys, "data", "convert", copy, source), "is the same file as the input")


def test_the_plot_of_statistics_does_not_replace_the_data(capsys, copy):
    before = contents(copy)
    result = run(capsys, "data", "stats", copy, "--plot", copy / "train.txt")
    assert is_one_line_error(result, "--plot", "is the same file as the input") and contents(copy) == before


# Pipes, devices, sockets and directories


def a_pipe(folder):
    os.mkfifo(folder / "pipe")
    return folder / "pipe", "is a named pipe"


def a_link_to_a_pipe(folder):
    (folder / "link").symlink_to(a_pipe(folder)[0])
    return folder / "link", "is a named pipe"


def a_device(folder):
    (folder / "zero").symlink_to("/dev/zero")
    return folder / "zero", "is a device"


def a_socket(folder):
    listener = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(folder)  # the path of a socket is short
    listener.bind("socket")
    os.chdir(before)
    return folder / "socket", "is a socket"


def a_directory(folder):
    (folder / "directory").mkdir()
    return folder / "directory", "is a directory"


def a_loop_of_links(folder):
    (folder / "loop").symlink_to("loop")
    return folder / "loop", "Too many levels of symbolic links"


def too_long_a_name(folder):
    return folder / ("n" * 256), "File name too long"


SPECIAL = [a_pipe, a_link_to_a_pipe, a_device, a_socket, a_directory, a_loop_of_links, too_long_a_name]


@pytest.mark.parametrize("special", SPECIAL, ids=lambda special: special.__name__)
@pytest.mark.parametrize("option", ["--out", "--log", "--plot", "--timings"])
def test_train_leaves_what_is_not_a_file(capsys, dataset, tmp_path, special, option):
    path, message = special(tmp_path)
    kinds = {file.name: file.lstat().st_mode for file in tmp_path.iterdir()}
    result = run(capsys, "train", dataset, "--out", tmp_path / "m", option, path)
    assert is_one_line_error(result, str(path)[:100], message)
    assert {file.name: file.lstat().st_mode for file in tmp_path.iterdir()} == kinds


@pytest.mark.parametrize("special", SPECIAL, ids=lambda special: special.__name__)
def test_predict_leaves_what_is_not_a_file(capsys, model, rows, tmp_path, special):
    path, message = special(tmp_path)
    kinds = {file.name: file.lstat().st_mode for file in tmp_path.iterdir()}
    assert is_one_line_error(run(capsys, "predict", model, rows, "--out", path), message)
    assert {file.name: file.lstat().st_mode for file in tmp_path.iterdir()} == kinds


@pytest.mark.parametrize("special", [a_pipe, a_device, a_directory], ids=lambda special: special.__name__)
def test_the_library_leaves_what_is_not_a_file(model, tmp_path, special):
    path, message = special(tmp_path)
    mode = path.stat().st_mode
    with pytest.raises(hb.FileError, match=message):
        hb.load(model).save(path)
    assert path.stat().st_mode == mode


@pytest.mark.parametrize("stdout", ["pipe", "file"])
def test_standard_output_by_name_is_refused_with_advice(capsys, model, rows, tmp_path, stdout):
    first, last = os.pipe()
    with (
        os.fdopen(last, "wb") as pipe,
        (tmp_path / "found").open("ab") as file,
        standard_stream(1, pipe if stdout == "pipe" else file),
    ):
        result = run(capsys, "predict", model, rows, "--out", "/dev/stdout")
    os.close(first)
    assert is_one_line_error(result, "is standard output", "leave the option")


@pytest.mark.parametrize("path", [".", "/", ""])
def test_a_path_without_a_name_is_refused(capsys, dataset, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    assert is_one_line_error(run(capsys, "train", dataset, "--out", path), "is a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_file_is_not_replaced(capsys, model, rows, tmp_path):
    (tmp_path / "found").touch(0o444)
    assert is_one_line_error(run(capsys, "predict", model, rows, "--out", tmp_path / "found"), "Permission denied")


# Links, permissions, failures midway


def test_a_link_is_followed_and_stays(capsys, dataset, model, rows, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("m", "found"):
        (tmp_path / name).symlink_to(f"elsewhere/{name}")
    (elsewhere / "m").write_bytes(b"old")
    assert run(capsys, "train", dataset, "--l2", 1, "--out", tmp_path / "m")[0] == 0
    assert run(capsys, "predict", model, rows, "--out", tmp_path / "found")[0] == 0
    assert (tmp_path / "m").is_symlink() and (tmp_path / "found").is_symlink()
    assert hb.load(elsewhere / "m").n_labels and (elsewhere / "found").read_text().count("\n") == 19
    assert sorted(file.name for file in elsewhere.iterdir()) == ["found", "m"]


def test_all_files_have_the_permissions_of_the_umask(capsys, dataset, model, rows, tmp_path):
    names = ("m", "plot", "log", "timings")
    before = os.umask(0o027)
    try:
        options = [part for name in names[1:] for part in (f"--{name}", tmp_path / name)]
        assert run(capsys, "train", dataset, *FC, "--out", tmp_path / "m", *options)[0] == 0
        assert run(capsys, "predict", model, rows, "--out", tmp_path / "found.jsonl")[0] == 0
    finally:
        os.umask(before)
    for name in (*names, "found.jsonl"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640, name


@pytest.mark.parametrize("name", ["found.jsonl", "found.jsonl.gz"])
def test_a_failure_midway_leaves_the_old_predictions(capsys, model, rows, tmp_path, name):
    """After more lines than a batch has, a line that cannot be read."""
    line = rows.read_bytes().splitlines(keepends=True)[0]
    rows.write_bytes(line * 3000 + b"1:x\n")
    out = tmp_path / name
    out.write_bytes(b"old")
    assert is_one_line_error(run(capsys, "predict", model, rows, "--out", out), f"{rows}:3001")
    assert contents(tmp_path) == {"rows.txt": rows.read_bytes(), name: b"old"}
    assert run(capsys, "predict", model, rows, "--skip-bad", "--out", out)[0] == 0
    found = gzip.decompress(out.read_bytes()) if name.endswith("gz") else out.read_bytes()
    assert found.count(b"\n") == 3001 and sorted(contents(tmp_path)) == sorted(["rows.txt", name])


LIMITED = """
    import json, resource, signal, sys
    from holobind.cli.main import main
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    for arguments in json.loads({commands!r}):
        sys.argv = ["holobind", *arguments]
        try:
            main()
        except SystemExit as ended:
            print(ended.code)
"""


def test_a_full_disk_leaves_the_old_files(dataset, model, rows, tmp_path):
    line = rows.read_bytes().splitlines(keepends=True)[0]
    rows.write_bytes(line * 30)
    commands = [
        ("predict", model, rows, "--out", tmp_path / "found"),
        ("train", dataset, "--quiet", "--l2", "1", "--out", tmp_path / "m"),
        ("data", "convert", dataset / "train.txt", "--quiet", "--to", "svmlight", tmp_path / "a.svm"),
    ]
    for command in commands:
        command[-1].write_bytes(b"old")
    child = run_child(LIMITED.format(commands=json.dumps([list(map(str, command)) for command in commands])))
    assert child.stdout == "2\n2\n2\n", child.stderr
    lines = child.stderr.splitlines()
    assert len(lines) == 3 and all("File too large" in line for line in lines), lines
    assert contents(tmp_path) == {"a.svm": b"old", "found": b"old", "m": b"old", "rows.txt": rows.read_bytes()}
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_log_is_added_to(capsys, dataset, tmp_path):
    log = tmp_path / "log"
    log.write_text("mine\n")
    for _ in range(2):
        assert run(capsys, "train", dataset, *FC, "--log", log, "--out", tmp_path / "m")[0] == 0
    first, *lines = log.read_text().splitlines()
    assert first == "mine" and [json.loads(line)["epoch"] for line in lines] == [1, 2, 1, 2]


@pytest.mark.parametrize("write", ["model", "predictions", "dataset"])
def test_what_a_killed_process_left_is_swept(capsys, model, rows, tmp_path, write):
    code = f"""
import os, signal
from holobind import _files
with _files.atomic_path({str(tmp_path / "m")!r}) as part:
    part.write_bytes(bytes(10**6))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == -9
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert _files.PART_NAME.fullmatch(left.name)
    if write == "model":
        hb.load(model).save(tmp_path / "m")
    elif write == "predictions":
        assert run(capsys, "predict", model, rows, "--out", tmp_path / "found")[0] == 0
    else:
        data.write(data.synthetic("bibtex", scale=0.05), tmp_path / "written")
    assert not left.exists()


def test_a_library_that_fails_to_write_leaves_the_old_model(model, tmp_path, monkeypatch):
    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "m").write_bytes(b"old")
    monkeypatch.setattr(_storage, "save_file", fail)
    with pytest.raises(hb.FileError, match=r"m cannot be written \(No space left on device\); choose another path"):
        hb.load(model).save(tmp_path / "m")
    assert contents(tmp_path) == {"m": b"old"}
