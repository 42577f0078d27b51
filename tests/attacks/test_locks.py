"""Two runs with the same --out: the second is refused, however the first ends, and locks are never in the way."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import _files, data

LONG_RUN = ("--network", "fc", "--hidden", "8", "--epochs", "1000000", "--patience", "0", "--batch-size", "32")
SHORT_RUN = ("--l2", "1")
START_SECONDS = 60.0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attack") / "toy"
    data.write(data.synthetic("bibtex", scale=0.05), folder)
    return folder


def start(dataset, out, *options):
    """A run that goes on until it is stopped; it has written a checkpoint."""
    command = [sys.executable, "-m", "holobind", "train", dataset, *LONG_RUN, "--out", out, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + START_SECONDS
    while not out.with_name("m.checkpoint").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    return process


@pytest.fixture
def running(dataset, tmp_path):
    process = start(dataset, tmp_path / "m")
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_is_refused_and_the_first_goes_on_until_it_is_interrupted(capsys, dataset, tmp_path, running):
    (tmp_path / "link").symlink_to("m")
    for out in ("m", "link"):
        for options in (SHORT_RUN, LONG_RUN, (*LONG_RUN, "--resume")):
            result = run(capsys, "train", dataset, *options, "--out", tmp_path / out)
            assert is_one_line_error(result, f"is being written by another run (process {running.pid}); wait")
    assert running.poll() is None and not (tmp_path / "m").exists()
    assert run(capsys, "train", dataset, *SHORT_RUN, "--out", tmp_path / "other")[0] == 0
    running.send_signal(signal.SIGINT)
    assert running.wait(START_SECONDS) == 130
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "m.checkpoint", "other"]


def test_a_killed_run_locks_nothing(capsys, dataset, tmp_path, running):
    running.kill()
    running.wait()
    assert (tmp_path / "m.lock").exists()
    result = run(capsys, "train", dataset, *SHORT_RUN, "--out", tmp_path / "m")
    assert is_one_line_error(result, "m.checkpoint belongs to an interrupted run of a network; finish that run, or")
    (tmp_path / "m.checkpoint").unlink()
    assert run(capsys, "train", dataset, *SHORT_RUN, "--out", tmp_path / "m")[0] == 0
    assert hb.load(tmp_path / "m").n_labels and not (tmp_path / "m.lock").exists()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_only_rank_0_locks(capsys, dataset, tmp_path, monkeypatch, rank):
    """Under torchrun all processes have the same --out."""
    monkeypatch.setenv("RANK", rank)
    with _files.exclusive(tmp_path / "m"):
        code = run(capsys, "train", dataset, *SHORT_RUN, "--out", tmp_path / "m")[0]
    assert code == (2 if rank == "0" else 0)


def the_users_own_notes(path):
    path.write_text("do not touch the door\n")


def many_digits(path):
    path.write_text("1" * 10**6)


def a_link_to_a_file_of_the_user(path):
    path.with_name("mine").write_text("123\n")
    path.symlink_to("mine")


def a_directory(path):
    path.mkdir()


def a_pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize(
    "attack",
    [the_users_own_notes, many_digits, a_link_to_a_file_of_the_user, a_directory, a_pipe],
    ids=lambda attack: attack.__name__,
)
def test_a_file_of_the_user_with_the_name_of_a_lock_is_left_alone(capsys, dataset, tmp_path, attack):
    lock = tmp_path / "m.lock"
    attack(lock)
    before = lock.lstat().st_mode, lock.read_text() if lock.is_file() else None
    result = run(capsys, "train", dataset, *SHORT_RUN, "--out", tmp_path / "m")
    assert is_one_line_error(result, str(lock)) and not (tmp_path / "m").exists()
    assert (lock.lstat().st_mode, lock.read_text() if lock.is_file() else None) == before


@pytest.mark.parametrize("left", [b"", b"12", b"12345\n"])
def test_a_run_that_was_killed_while_it_wrote_its_lock_locks_nothing(tmp_path, left):
    (tmp_path / "m.lock").write_bytes(left)
    with _files.exclusive(tmp_path / "m"):
        assert (tmp_path / "m.lock").read_text() == f"{os.getpid()}\n"
    assert not (tmp_path / "m.lock").exists()


def test_an_error_releases_the_lock(capsys, tmp_path):
    for _ in range(2):
        result = run(capsys, "train", tmp_path / "nothing", "--out", tmp_path / "m")
        assert is_one_line_error(result, "no such file") and not list(tmp_path.iterdir())
