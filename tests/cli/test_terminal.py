"""The progress bar, and the claim on output files."""

import time

import pytest
import rich.progress

from holobind.cli import terminal
from holobind.errors import FileError


def test_the_progress_bar_appears_after_a_delay(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(rich.progress.Progress, "start", lambda self: started.append(1))
    with terminal.progress() as report:
        report("working", 0.5)
    assert not started
    monkeypatch.setattr(terminal, "PROGRESS_DELAY_SECONDS", 0.0)
    with terminal.progress() as report:
        report("working", 0.5)
        deadline = time.monotonic() + 10
        while not started and time.monotonic() < deadline:
            time.sleep(0.001)
    assert started


def test_no_progress_is_drawn_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PROGRESS_DELAY_SECONDS", 0.0)
    with terminal.progress() as report:
        report("working", 0.5)
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["nowhere/file", "."])
def test_an_unwritable_path_is_a_file_error(tmp_path, name):
    with (
        pytest.raises(FileError, match=r"cannot be written|is a directory"),
        terminal.claim_outputs({"--out": tmp_path / name}),
    ):
        pass
    with terminal.claim_outputs({"--out": tmp_path / "file"}):
        assert [file.name for file in tmp_path.iterdir()] == ["file.lock"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rank", "printed"), [("0", "holobind: stopped\n"), ("1", "")])
def test_only_rank_0_reports_an_interruption(monkeypatch, capsys, rank, printed):
    monkeypatch.setenv("RANK", rank)
    assert terminal.interrupted("stopped").exit_code == 130
    assert capsys.readouterr() == ("", printed)
