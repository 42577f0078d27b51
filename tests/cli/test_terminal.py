"""What verbs share."""

import time

import pytest
import rich.progress

from holobind.cli import terminal
from holobind.errors import FileError


def test_a_bar_appears_only_after_two_seconds(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(rich.progress.Progress, "start", lambda self: started.append(1))
    with terminal.progress() as tell:
        tell("working", 0.5)
    assert not started
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.progress() as tell:
        tell("working", 0.5)
        deadline = time.monotonic() + 10
        while not started and time.monotonic() < deadline:
            time.sleep(0.001)
    assert started


def test_nothing_is_drawn_where_nobody_looks(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.progress() as tell:
        tell("working", 0.5)
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["nowhere/file", "."])
def test_a_place_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(FileError, match=r"cannot be written|is a directory"):
        terminal.check_writable(tmp_path / name)
    terminal.check_writable(tmp_path / "file")
    assert not list(tmp_path.iterdir())
