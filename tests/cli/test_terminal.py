"""The progress bar, and the claim on output files."""

import time

import pytest
import rich.progress

from holobind.cli import terminal
from holobind.errors import FileError


def test_the_progress_bar_appears_after_a_delay(monkeypatch, capsys):
    started = []
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
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


def test_without_a_terminal_a_line_is_printed_every_few_seconds(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PROGRESS_LINE_SECONDS", 5.0)
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with terminal.progress() as report:
        for tenth in range(130):
            now[0] = 100 + tenth / 10
            report("solving", tenth / 130)
    assert capsys.readouterr() == ("", "holobind: 5 s: solving 38%\nholobind: 10 s: solving 77%\n")


def test_quiet_shows_nothing(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PROGRESS_LINE_SECONDS", 0.0)
    monkeypatch.setitem(terminal._settings, "quiet", False)
    terminal.set_quiet(True)
    with terminal.progress() as report:
        report("working", 0.5)
    assert capsys.readouterr() == ("", "")
    terminal.set_quiet(False)
    with terminal.progress() as report:
        report("working", 0.0)
    assert capsys.readouterr() == ("", "holobind: 0 s: working\n")


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
