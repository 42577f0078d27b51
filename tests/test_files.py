"""Files are replaced whole or not at all, keep their permissions and links, and are locked by one process at a time."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from holobind import _files as files
from holobind.errors import FileError

DEAD = 4194305  # above the largest number that Linux gives a process
PART = ".holobind-{}-0123456789abcdef.part"


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(KeyError), files.atomic_write(target) as file:
        file.write(b"half")
        file.flush()
        assert target.read_bytes() == b"old"
        raise KeyError
    assert target.read_bytes() == b"old" and names(tmp_path) == ["file"]
    with files.atomic_write(target) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new" and names(tmp_path) == ["file"]


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "data"
    with pytest.raises(KeyError), files.atomic_directory(target) as folder:
        (folder / "train.txt").write_text("half")
        raise KeyError
    assert not names(tmp_path)
    target.mkdir()  # an empty one is replaced
    with files.atomic_directory(target) as folder:
        (folder / "train.txt").write_text("whole")
    assert names(tmp_path) == ["data"] and (target / "train.txt").read_text() == "whole"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_a_new_file_and_a_new_directory_have_the_permissions_of_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        with files.atomic_path(tmp_path / "file") as part:
            part.unlink()
            os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))  # as a library may write it
        with files.atomic_directory(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~umask


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o640)
    with files.atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_the_file_and_its_directory_are_synchronised_before_and_after_the_rename(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(files, "_synchronise", lambda path: done.append((path.name, (tmp_path / "file").exists())))
    with files.atomic_write(tmp_path / "file"):
        pass
    assert done == [("file", False), (tmp_path.name, True)]


def test_a_name_of_the_greatest_length_is_written(tmp_path):
    with files.atomic_write(tmp_path / ("n" * 255)) as file:
        file.write(b"new")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"new"


# What killed processes leave


def left(folder, pid, age=0.0):
    part = folder / PART.format(pid)
    part.mkdir()
    (part / ".tmpA1b2C3").write_bytes(b"half")
    for path in (part / ".tmpA1b2C3", part):
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    return part


@pytest.mark.parametrize(
    ("pid", "age", "kept"),
    [(DEAD, 0, False), (os.getpid(), 0, True), (os.getpid(), 2 * 3600, False)],
    ids=["dead", "alive", "old"],
)
def test_parts_of_ended_processes_are_removed(tmp_path, pid, age, kept):
    part = left(tmp_path, pid, age)
    files.remove_stale_parts(tmp_path)
    assert part.exists() == kept


def test_a_part_that_is_being_written_is_kept_however_old_it_is(tmp_path):
    with files.atomic_write(tmp_path / "file") as file:
        (part,) = tmp_path.iterdir()
        for path in (part / "file", part):
            os.utime(path, (0, 0))
        threading.Thread(target=files.remove_stale_parts, args=[tmp_path]).run()
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["model.part", ".holobind-x-0123456789abcdef.part", f".holobind-{DEAD}-0.part"])
def test_other_names_are_not_swept(tmp_path, name):
    (tmp_path / name).mkdir()
    files.remove_stale_parts(tmp_path)
    assert names(tmp_path) == [name]


def test_files_and_links_with_the_name_of_a_part_and_parts_of_others_are_not_swept(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / PART.format(DEAD)).symlink_to("mine")
    (tmp_path / PART.format(DEAD + 1)).write_bytes(b"a file")
    before = names(tmp_path)
    files.remove_stale_parts(tmp_path)
    assert names(tmp_path) == before
    part = left(tmp_path, DEAD + 2)
    monkeypatch.setattr(files, "_user", lambda: 12345)
    files.remove_stale_parts(tmp_path)
    assert part.exists()


# Lines


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "b\nc\n"), ("a\n", "a\nb\nc\n"), ("a", "a\nb\nc\n"), ("b\na\n", "b\na\nc\n"), ("c\nb\n", "c\nb\n")],
)
def test_lines_are_added_once_and_nothing_is_changed(tmp_path, before, after):
    (tmp_path / "log").write_text(before)
    files.add_lines(tmp_path / "log", ["b\n", "c\n"])
    assert (tmp_path / "log").read_text() == after


# Locks


def test_a_second_lock_is_refused_and_a_later_one_is_not(tmp_path):
    out = tmp_path / "m"
    with files.exclusive(out):
        with pytest.raises(FileError, match=rf"another run \(process {os.getpid()}\); wait for its end"):
            files.exclusive(out).__enter__()
        assert names(tmp_path) == ["m.lock"]
    assert not names(tmp_path)
    with files.exclusive(out):
        pass


def test_a_lock_that_its_holder_removes_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    opened, removed = files._open_locked, []

    def open_and_remove_once(path, flags):
        handle = opened(path, flags)
        if not removed:
            removed.append(path.unlink())
        return handle

    monkeypatch.setattr(files, "_open_locked", open_and_remove_once)
    with files.exclusive(tmp_path / "m"):
        monkeypatch.undo()
        with pytest.raises(FileError, match="another run"):
            files.exclusive(tmp_path / "m").__enter__()


def test_without_locks_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with files.exclusive(tmp_path / "m"), files.exclusive(tmp_path / "m"), files.atomic_write(tmp_path / "m") as file:
        file.write(b"new")
    assert names(tmp_path) == ["m"]


def test_a_lock_ends_with_its_process(tmp_path):
    code = "import sys, time; from holobind._files import exclusive as e; l = e(sys.argv[1]); l.__enter__(); print(); "
    command = [sys.executable, "-u", "-c", code + "time.sleep(60)", tmp_path / "m"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(FileError, match=rf"process {process.pid}\)"):
            files.exclusive(tmp_path / "m").__enter__()
        process.kill()
        process.wait()
    assert names(tmp_path) == ["m.lock"]
    with files.exclusive(tmp_path / "m"):
        pass
    assert not names(tmp_path)


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path):
    """The target is replaced by a rename, not written into."""
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with target.open("rb") as reader:
        with files.atomic_write(target) as file:
            file.write(b"new and longer")
        assert reader.read() == b"old"
    assert target.read_bytes() == b"new and longer"
