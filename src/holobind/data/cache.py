"""A binary cache of parsed files in the user's cache directory. No pickle; never trusted when stale or damaged.

    magic, 16 bytes | digest, 32 | length of the JSON, 8 | JSON | arrays, one after the other

The JSON says for which source (path, size, mtime, hash of sampled blocks) and names the arrays with type and length.
The digest is over the JSON and the checksums of the arrays. Anything unexpected means that there is no cache. Arrays
can be mapped instead of read: the digest is then checked in one pass over the file that keeps a 512th of it in memory,
and what changes in the file after that is not noticed.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"holobind cache 1"
SAMPLE = 1 << 16
SAMPLES = 16
WIDTH = 512
PORTION = 8 * WIDTH << 10  # bytes of a file that is only looked at
KINDS = {"<i4", "<i8", "<f4"}
Arrays = dict[str, NDArray[Any]]


def directory() -> Path:
    """`$HOLOBIND_CACHE`, or `holobind` in the place where this system keeps caches."""
    if own := os.environ.get("HOLOBIND_CACHE"):
        return Path(own)
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "holobind"


def fingerprint(path: Path) -> dict[str, Any]:
    """Size, time of change, and a hash of 16 blocks of 64 KB: all of a small file, an even sample of a large one."""
    about = path.stat()
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if about.st_size <= SAMPLE * SAMPLES:
            digest.update(file.read())
        else:
            for start in np.linspace(0, about.st_size - SAMPLE, SAMPLES).astype(int).tolist():
                file.seek(start)
                digest.update(file.read(SAMPLE))
    return {"size": about.st_size, "mtime": about.st_mtime_ns, "sample": digest.hexdigest()}


def location(source: Path, **options: Any) -> Path:
    key = json.dumps([str(source.resolve()), options], sort_keys=True)
    return directory() / "parsed" / f"{source.name}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.cache"


def read(at: Path, key: dict[str, Any], *, mapped: bool = False) -> tuple[dict[str, Any], Arrays] | None:
    """The facts and arrays stored at `at` if they are for `key` and undamaged; `mapped` arrays stay in the file."""
    try:
        with at.open("rb", buffering=0) as file:
            magic, digest, length = file.read(16), file.read(32), int.from_bytes(file.read(8), "little")
            if magic != MAGIC or length > 1 << 20:
                return None
            text = file.read(length)
            about = json.loads(text)
            if not {kind for _, kind, _ in about["arrays"]} <= KINDS:
                return None
            expected = 56 + length + sum(np.dtype(kind).itemsize * n for _, kind, n in about["arrays"])
            if about["key"] != key or os.fstat(file.fileno()).st_size != expected:
                return None
            arrays: Arrays = {}
            total = hashlib.blake2b(text, digest_size=32)
            for name, kind, n in about["arrays"]:
                if mapped and n:  # nothing cannot be mapped
                    start, size = file.tell(), n * np.dtype(kind).itemsize
                    total.update(_checksum_of_file(file, size))
                    arrays[name] = np.memmap(file, kind, "r", start, (n,))
                    file.seek(start + size)
                else:
                    arrays[name] = np.empty(n, kind)
                    _fill(file, arrays[name].view(np.uint8))
                    total.update(_checksum(arrays[name].view(np.uint8)))
        return (about["facts"], arrays) if digest == total.digest() else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, MemoryError):
        return None


def _fill(file: Any, room: NDArray[np.uint8]) -> None:
    view = room.data
    while view.nbytes:
        if not (got := file.readinto(view)):
            raise EOFError
        view = view[got:]


def write(at: Path, key: dict[str, Any], facts: dict[str, Any], arrays: Arrays) -> None:
    """Store facts and arrays, whole or not at all; a directory that cannot be written is no reason to fail."""
    sizes = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps({"key": key, "facts": facts, "arrays": sizes}).encode()
    with contextlib.suppress(OSError):
        at.parent.mkdir(parents=True, exist_ok=True)
        with replacing(at) as file:
            file.write(MAGIC + _digest(text, arrays) + len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(array.view(np.uint8).data)


@contextlib.contextmanager
def replacing(target: Path, mode: str = "wb") -> Any:
    """Write a file that takes the place of `target` when all of it is written, or leaves nothing behind."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8", newline=None) as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's files are for one's own eyes only
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _digest(text: bytes, arrays: Arrays) -> bytes:
    total = hashlib.blake2b(text, digest_size=32)
    for array in arrays.values():
        total.update(_checksum(array.view(np.uint8)))
    return total.digest()


def _checksum(data: NDArray[np.uint8]) -> bytes:
    """Sums along the rows and along the columns of the data laid out in rows of 4 KB, and what is left over.

    No change of one place, and no exchange of two, leaves both alike; it runs at the speed of memory, which no hash of
    the standard library does.
    """
    whole = len(data) // (8 * WIDTH) * (8 * WIDTH)
    table = data[:whole].view(np.uint64).reshape(-1, WIDTH)
    return table.sum(0).tobytes() + table.sum(1).tobytes() + data[whole:].tobytes()


def _checksum_of_file(file: Any, size: int) -> bytes:
    """`_checksum` of the next `size` bytes, read in portions that are not kept."""
    columns, rows = np.zeros(WIDTH, np.uint64), []
    room = np.empty(PORTION, np.uint8)
    rest = b""
    for start in range(0, size, PORTION):
        part = room[: min(PORTION, size - start)]
        _fill(file, part)
        whole = len(part) // (8 * WIDTH) * (8 * WIDTH)
        table = part[:whole].view(np.uint64).reshape(-1, WIDTH)
        columns += table.sum(0)
        rows.append(table.sum(1).tobytes())
        rest = part[whole:].tobytes()
    return columns.tobytes() + b"".join(rows) + rest
