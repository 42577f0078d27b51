"""Write files so that nothing of the user's is lost: whole or not at all, never over an input, one run at a time.

A file is written into a directory of its own next to its target, `.holobind-PID-TOKEN.part`, synchronised with the
disk, and renamed. Until then the target is what it was. Its writer holds a lock of the part, which the kernel releases
when the process ends, however it ends; what a killed process has left is removed by the next writer.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from holobind.errors import FileError, HolobindError

PART_NAME = re.compile(r"\.holobind-(\d{1,10})-[0-9a-f]{16}\.part")
STALE_PART_SECONDS = (
    3600.0  # after which a part without a lock is removed, even if a process has the number of its writer
)
LOCK_CONTENT = re.compile(rb"(\d{1,10}\n?)?")  # the number of the process; a killed one may have written a part of it
MAX_LOCK_FILE_BYTES = 16  # a longer file is not a lock of holobind
STANDARD_STREAMS = {1: "standard output", 2: "standard error"}
SPECIAL_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


# Writing


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, durable: bool = True) -> Iterator[IO[Any]]:
    """Open a file that replaces `path` at the end of the `with`; after an error `path` is what it was.

    durable   see `atomic_path`
    """
    with (
        atomic_path(path, durable=durable) as part,
        part.open(mode, encoding=None if "b" in mode else "utf-8") as file,
    ):
        yield file


@contextlib.contextmanager
def atomic_path(path: str | Path, *, durable: bool = True) -> Iterator[Path]:
    """A path to write to, whose file replaces `path` at the end of the `with`; after an error `path` is what it was.

    durable   the new file is on the disk before it takes the name: a crash of the machine leaves the old or the new one

    The file has the permissions of the one that it replaces, or those that the umask leaves. A symbolic link stays, and
    the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    _refuse_special(Path(path))
    with _part_of(target) as folder:
        part = folder / target.name
        part.touch(0o666)
        permissions = (target if target.exists() else part).stat().st_mode & 0o777
        yield part
        part.chmod(permissions)  # a library may have replaced the file by one that only its owner can read
        if durable:
            _synchronise(part)
        part.replace(target)
        if durable:
            _synchronise(target.parent)


@contextlib.contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """A new directory that takes the name `path`, which is free or an empty directory, at the end of the `with`."""
    target = Path(os.path.realpath(path))
    with _part_of(target) as folder:
        part = folder / target.name
        part.mkdir()
        yield part
        for entry in (*part.iterdir(), part):
            _synchronise(entry)
        if target.exists():
            target.rmdir()
        part.rename(target)
        _synchronise(target.parent)


def add_lines(path: Path, lines: Sequence[str]) -> None:
    """Add lines to the end of a file, but none that it has already; nothing that it has is changed."""
    wanted = [line.encode() for line in lines]
    with write_errors(path), path.open("ab+") as file:
        file.seek(0)
        last = b"\n"
        for last in file:
            if last in wanted:
                wanted.remove(last)
        if wanted:
            file.write((b"" if last.endswith(b"\n") else b"\n") + b"".join(wanted))  # after an incomplete line


@contextlib.contextmanager
def write_errors(path: str | Path) -> Iterator[None]:
    """Turn an `OSError`, such as of a full disk, into a `FileError` that names the file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, HolobindError):
            raise
        raise FileError(f"{path} cannot be written ({error.strerror or error}); choose another path") from error


@contextlib.contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """A locked directory next to `target` for what is being written; it is removed at the end."""
    remove_stale_parts(target.parent)
    folder = target.parent / f".holobind-{os.getpid()}-{secrets.token_hex(8)}.part"
    folder.mkdir(0o700)
    lock = None
    try:
        lock = _open_locked(folder, os.O_RDONLY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_stale_parts(directory: Path) -> None:
    """Remove what killed processes of this user have left half written in a directory."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if match := PART_NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    if _is_stale(entry, int(match[1])):
                        shutil.rmtree(entry.path, ignore_errors=True)


def _is_stale(part: "os.DirEntry[str]", pid: int) -> bool:
    """Whether a part is this user's and its writer has ended.

    A part that is locked has a writer, perhaps on another machine or in another container, where numbers of processes
    mean something else. The number protects a part in the moment between its creation and its lock.
    """
    status = part.stat(follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != _user():
        return False
    modified = max([status.st_mtime, *(entry.stat().st_mtime for entry in os.scandir(part))])
    is_old = time.time() - modified > STALE_PART_SECONDS
    if not is_old and _is_running(pid):
        return False
    try:
        lock = _open_locked(Path(part.path), os.O_RDONLY)
    except BlockingIOError:
        return False
    if lock is None:
        return is_old
    os.close(lock)
    return True


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0  # as st_uid, on Windows


def _is_running(pid: int) -> bool:
    """Whether a process has this number; always on Windows, where only age counts: signal 0 would be Ctrl-C there."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _synchronise(path: Path) -> None:
    """Wait until a file or a directory is on the disk. Some file systems do not offer that for directories."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(handle)


# Locks


@contextlib.contextmanager
def exclusive(path: str | Path) -> Iterator[None]:
    """Hold the lock of an output, the file `PATH.lock`; raise a `FileError` if another process holds it.

    The kernel releases the lock when the process ends, so a file that a killed process has left locks nothing. Where
    there are no such locks (Windows, some network file systems) nothing is refused.
    """
    file, lock = lock_path(path), None
    with write_errors(file):
        while lock is None or _identity(file) != _identity(
            lock
        ):  # the previous holder may remove it between opening and locking
            if lock is not None:
                os.close(lock)
            _check_lock_file(file)
            try:
                lock = _open_locked(file, os.O_RDWR | os.O_CREAT)
            except BlockingIOError as error:
                holder = _lock_content(file).strip().decode()
                by = f" (process {holder})" if holder.isdecimal() else ""
                raise FileError(
                    f"{path} is being written by another run{by}; wait for its end, or choose another path"
                ) from error
            if lock is None:  # no locks here
                break
    try:
        if lock is not None:
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        if lock is not None:
            file.unlink(missing_ok=True)  # before it is released: afterwards it may be another's
            os.close(lock)


def lock_path(path: str | Path) -> Path:
    """The lock file of an output: one, whatever link leads to the output."""
    return Path(f"{os.path.realpath(path)}.lock")


def _check_lock_file(path: Path) -> None:
    """Refuse a file of the user that has the name of a lock: it would be overwritten."""
    is_other = path.is_symlink() or (path.exists() and not path.is_file())
    if is_other or not LOCK_CONTENT.fullmatch(_lock_content(path)):
        raise FileError(f"{path} is in the way of a lock and was not written by holobind; rename it")


def _lock_content(path: Path) -> bytes:
    """What a lock file says; nothing if its holder has removed it meanwhile."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(MAX_LOCK_FILE_BYTES)
    return b""


def _open_locked(path: Path, flags: int) -> int | None:
    """Open a file and lock it, or raise `BlockingIOError`; None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle


# Checks before the work starts


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | int] = ()) -> None:
    """Raise a `FileError` if a file cannot be written, or would replace an input or another output.

    outputs   from a name for messages, such as "--out", to the path, or None where nothing is written
    inputs    paths, or numbers of open files

    Files are compared by identity, so links are no way around.
    """
    sources = {_identity(file): file for file in inputs}
    seen: dict[tuple[int, int] | str, str] = {}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path)
        existing = _identity(path)
        if existing in sources and existing is not None:
            source = sources[existing]
            shown = source if isinstance(source, Path) else "standard input"
            raise FileError(f"{name} {path} is the same file as the input {shown}; choose another path")
        identity = existing or os.path.realpath(path)
        if identity in seen:
            raise FileError(f"{name} {path} is the same file as {seen[identity]}; choose another path")
        seen[identity] = f"{name} {path}"


def check_output(path: Path) -> None:
    """Raise a `FileError` if a file cannot be written."""
    _refuse_special(path)
    target = Path(os.path.realpath(path))
    with write_errors(path):
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with _part_of(target):
            pass


def _refuse_special(path: Path) -> None:
    """Refuse whatever is not a file and would be replaced by one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path} cannot be written ({reason}); choose another path") from error
    for handle, name in STANDARD_STREAMS.items():
        if _identity(path) == _identity(handle):
            raise FileError(f"{path} is {name}; to write there leave the option out, or choose another path")
    if stat.S_ISDIR(mode):
        raise FileError(f"{path} is a directory; give the path of a file")
    if not stat.S_ISREG(mode):
        kind = SPECIAL_FILES.get(stat.S_IFMT(mode), "not a file")
        raise FileError(f"{path} is {kind}, which a file would replace; give the path of a file")


def _identity(file: Path | int) -> tuple[int, int] | None:
    """What is the same for all names of a file: its device and its number there. None if there is no such file."""
    try:
        status = os.stat(file)  # noqa: PTH116 a path or a number
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
