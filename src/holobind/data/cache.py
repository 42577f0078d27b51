"""A binary cache of parsed files in the user's cache directory. It uses no pickle.

    magic, 16 bytes | digest, 32 bytes | length of the JSON, 8 bytes | JSON | arrays, one after the other

The JSON holds the key of the source (size, times, inode, hash of sampled blocks), the caller's metadata, and the name,
dtype and length of each array. The digest covers the JSON and the checksums of the arrays. A cache file that is stale,
damaged, not a cache file or another user's is ignored, and the source is parsed again. The digest shows damage, not
intent: who can write the file can compute it, so callers check the arrays, too.

A cache is never the cause of an error: where it cannot be written it is skipped, with one line on stderr.

Arrays can be memory-mapped instead of read. The digest is then checked in one pass over the file, in chunks. Changes of
the file after that pass are not noticed. Arrays that are mapped from another file are written chunk by chunk, too.
"""

import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holobind._files import atomic_write
from holobind.data.csr import release_array
from holobind.errors import FileError

MAGIC = b"holobind cache 3"
MAX_JSON_BYTES = 1 << 20
WHOLE_HASH_BYTES = 4 << 20  # up to which the fingerprint hashes all of a file
END_BYTES = 1 << 16  # hashed at each end of a larger file
SAMPLE_BYTES = 1 << 12  # length of each sample between the ends
N_SAMPLES = 64
CHECKSUM_COLUMNS = 512  # 64-bit words in a row of the checksum's table
CHECKSUM_ROW_BYTES = 8 * CHECKSUM_COLUMNS
CHECKSUM_CHUNK_BYTES = CHECKSUM_ROW_BYTES << 10  # read or written at a time
MAX_NAME_LETTERS = 40  # of the source in the name of its cache file; a name has at most 255 bytes
ALLOWED_DTYPES = {"|u1", "<i4", "<i8", "<f4"}
Arrays = dict[str, NDArray[Any]]
_said = False  # that the cache is skipped


def cache_dir() -> Path:
    """`$HOLOBIND_CACHE`, or the folder `holobind` in the system's directory for caches.

    Without a home directory it is a path at which nothing can be written.
    """
    if chosen := os.environ.get("HOLOBIND_CACHE"):
        return Path(chosen)
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no $HOME, and no entry of this user in the system's list
        base = os.devnull
    return Path(base) / "holobind"


def writable_dir() -> Path | None:
    """The cache directory, which is made if it does not exist; None if it cannot be written."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("permission denied")
    except OSError as error:
        skipped(error)
        return None
    return folder


def skipped(error: Exception) -> None:
    """Say once, in one line on stderr, that there is no cache."""
    global _said  # noqa: PLW0603
    if not _said:
        _said = True
        reason = getattr(error, "strerror", None) or str(error)
        logging.getLogger("holobind").warning(
            "holobind: %s cannot be used as the cache (%s), so nothing is cached; HOLOBIND_CACHE can name another "
            "directory",
            cache_dir(),
            reason,
        )


def fingerprint(path: Path) -> dict[str, Any]:
    """Size, times, inode and a hash of a file's content.

    The hash covers all of a file up to 4 MB; of a larger one the first and last 64 KB and 64 samples of 4 KB between.
    A program that edits a file and sets its time back still changes the ctime, which no program can set.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        digest = hashlib.blake2b(digest_size=16)
        if status.st_size <= WHOLE_HASH_BYTES:
            digest.update(file.read(WHOLE_HASH_BYTES))
        else:
            starts = np.linspace(END_BYTES, status.st_size - END_BYTES - SAMPLE_BYTES, N_SAMPLES).astype(int).tolist()
            pieces = [
                (0, END_BYTES),
                *((start, SAMPLE_BYTES) for start in starts),
                (status.st_size - END_BYTES, END_BYTES),
            ]
            for start, length in pieces:
                file.seek(start)
                digest.update(file.read(length))
    return {
        "size": status.st_size,
        "mtime": status.st_mtime_ns,
        "ctime": status.st_ctime_ns,
        "file": [status.st_dev, status.st_ino],
        "sample": digest.hexdigest(),
    }


def cache_path(source: Path, **options: Any) -> Path:
    """The cache file of a source that is parsed with these options."""
    key = json.dumps([str(source.resolve()), options], sort_keys=True)
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return cache_dir() / "parsed" / f"{source.name[:MAX_NAME_LETTERS]}-{digest}.cache"


def read(path: Path, key: dict[str, Any], *, memory_map: bool = False) -> tuple[dict[str, Any], Arrays] | None:
    """The metadata and arrays of a cache file; None if it is missing, damaged, or written for another key.

    memory_map   leave the arrays in the file
    """
    try:
        if not is_own_file(path.stat()):  # before it is opened: a pipe would wait
            return None
        with path.open("rb", buffering=0) as file:
            if not is_own_file(os.fstat(file.fileno())):
                return None
            magic, digest, length = file.read(16), file.read(32), int.from_bytes(file.read(8), "little")
            if magic != MAGIC or length > MAX_JSON_BYTES:
                return None
            text = file.read(length)
            header = json.loads(text)
            if not all(dtype in ALLOWED_DTYPES and type(n) is int and n >= 0 for _, dtype, n in header["arrays"]):
                return None
            expected = 56 + length + sum(np.dtype(dtype).itemsize * n for _, dtype, n in header["arrays"])
            if header["key"] != key or os.fstat(file.fileno()).st_size != expected:
                return None
            arrays: Arrays = {}
            total = hashlib.blake2b(text, digest_size=32)
            for name, dtype, n in header["arrays"]:
                if memory_map and n:  # an empty array cannot be mapped
                    start, size = file.tell(), n * np.dtype(dtype).itemsize
                    total.update(_checksum_of(_file_chunks(file, size)))
                    arrays[name] = np.memmap(file, dtype, "r", start, (n,))
                    file.seek(start + size)
                else:
                    arrays[name] = np.empty(n, dtype)
                    _read_into(file, arrays[name].view(np.uint8))
                    total.update(_checksum(arrays[name]))
        return (header["metadata"], arrays) if digest == total.digest() else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, MemoryError, RecursionError):
        return None


def is_own_file(status: os.stat_result) -> bool:
    """Whether it is a file of this user, which others cannot have written."""
    own = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and own


def _read_into(file: Any, buffer: NDArray[np.uint8]) -> None:
    view = buffer.data
    while view.nbytes:
        if not (n_read := file.readinto(view)):
            raise EOFError
        view = view[n_read:]


def write(path: Path, key: dict[str, Any], metadata: dict[str, Any], arrays: Arrays) -> None:
    """Store metadata and arrays atomically. If the directory cannot be written, that is said and nothing is stored."""
    specs = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps({"key": key, "metadata": metadata, "arrays": specs}).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=False) as file:
            file.write(MAGIC + _digest(text, arrays) + len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                for chunk in _array_chunks(array):
                    file.write(chunk.data)
    except (OSError, FileError) as error:
        skipped(error)


def _digest(text: bytes, arrays: Arrays) -> bytes:
    total = hashlib.blake2b(text, digest_size=32)
    for array in arrays.values():
        total.update(_checksum(array))
    return total.digest()


def _checksum(array: NDArray[Any]) -> bytes:
    return _checksum_of(_array_chunks(array))


def _checksum_of(chunks: Iterable[NDArray[np.uint8]]) -> bytes:
    """A hash of sums along the rows and the columns of data as a table with rows of 4 KB, and of the incomplete row.

    A change of one word changes a row sum, and an exchange of two words changes a row sum or a column sum. The sums run
    at the speed of memory, which no hash of the standard library does.
    """
    digest = hashlib.blake2b(digest_size=32)
    column_sums, rest = np.zeros(CHECKSUM_COLUMNS, np.uint64), b""
    for chunk in chunks:
        whole = len(chunk) // CHECKSUM_ROW_BYTES * CHECKSUM_ROW_BYTES
        table = chunk[:whole].view(np.uint64).reshape(-1, CHECKSUM_COLUMNS)
        column_sums += table.sum(0)
        digest.update(table.sum(1).tobytes())
        rest = chunk[whole:].tobytes()
    digest.update(column_sums.tobytes() + rest)
    return digest.digest()


def _array_chunks(array: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
    """The bytes of an array in chunks; where it is mapped from a file, the pages of each are released after it."""
    data = array.view(np.uint8)
    for start in range(0, len(data), CHECKSUM_CHUNK_BYTES):
        yield data[start : start + CHECKSUM_CHUNK_BYTES]
        release_array(data, start, start + CHECKSUM_CHUNK_BYTES)


def _file_chunks(file: Any, size: int) -> Iterator[NDArray[np.uint8]]:
    """The next `size` bytes of a file, in chunks that share one buffer."""
    buffer = np.empty(CHECKSUM_CHUNK_BYTES, np.uint8)
    for start in range(0, size, CHECKSUM_CHUNK_BYTES):
        chunk = buffer[: min(CHECKSUM_CHUNK_BYTES, size - start)]
        _read_into(file, chunk)
        yield chunk
