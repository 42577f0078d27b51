"""Open files for reading: compressed ones within a limit, and nothing but files.

A few kilobytes can expand to gigabytes, so what a compressed file may expand to follows from its own size. One option
raises this limit: `max_uncompressed` in Python, `--max-uncompressed` on the command line.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

from holobind.errors import DataError

OPEN_COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
BOM = b"\xef\xbb\xbf"  # the byte order mark that some programs write at the start of a UTF-8 file
MAX_EXCERPT_BYTES = 40
MAX_EXPANSION = 100  # times its own size to which a compressed file may expand
MIN_EXPANSION_BYTES = 64 << 20  # to which every compressed file may expand
MAX_LINE_BYTES = 64 << 20  # of one row, text or record
MIN_ROW_LIMIT = 1 << 20  # rows to which every compressed file may expand
MAX_ROWS_PER_BYTE = 4  # to which a compressed file may expand
MIN_ID_LIMIT = 1 << 24  # features or labels that even a small file may have, as of features hashed to 24 bits
READ_BYTES = 1 << 20


def expansion_limit(n_bytes: int, max_uncompressed: int | None = None) -> int:
    """The bytes to which `n_bytes` of compressed data may expand."""
    return max(MIN_EXPANSION_BYTES, MAX_EXPANSION * n_bytes) if max_uncompressed is None else max_uncompressed


def row_limit(n_bytes: int, max_uncompressed: int | None = None) -> int:
    """The rows to which `n_bytes` of compressed data may expand, because even an empty row takes memory."""
    return max(MIN_ROW_LIMIT, MAX_ROWS_PER_BYTE * n_bytes, max_uncompressed or 0)


def expansion_error(source: object, limit: int, unit: str = "bytes") -> DataError:
    """The error of a file that expands to more than it may."""
    return DataError(
        f"{source}: it expands to more than {limit:,} {unit}; if you trust it, --max-uncompressed 20GB (in Python: "
        f"max_uncompressed) raises that limit"
    )


def id_limit(n_bytes: int, max_uncompressed: int | None = None) -> int:
    """The largest number of features or labels that data of `n_bytes` may have: arrays of that length are made."""
    return max(MIN_ID_LIMIT, n_bytes, max_uncompressed or 0)


def check_is_file(path: Path, *, pipes: bool = False) -> None:
    """Refuse what is not a regular file: reading a pipe could wait forever, and gives its content only once.

    pipes   allow them, and devices
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(status.st_mode):
        raise DataError(f"{path}: a directory, not a file")
    if not stat.S_ISREG(status.st_mode) and not pipes:
        raise DataError(
            f"{path}: a pipe or a device, not a file; save the data to a file, "
            f"or pipe lines to `holobind predict MODEL -`"
        )


@contextlib.contextmanager
def open_binary(
    path: Path, max_uncompressed: int | None = None, *, pipes: bool = False
) -> Iterator[tuple[IO[bytes], Callable[[], float]]]:
    """Open a file for reading and decompress it if its suffix is that of a compressed file.

    Gives the stream of bytes, and a function that returns the fraction of the file that has been read.

    max_uncompressed   bytes to which a compressed file may expand, instead of `expansion_limit`
    pipes              read pipes and devices, too
    """
    check_is_file(path, pipes=pipes)
    try:
        with path.open("rb", buffering=0) as raw:
            size = os.fstat(raw.fileno()).st_size
            decompress = OPEN_COMPRESSED.get(path.suffix.lower())
            with decompress(raw, "rb") if decompress else raw as opened:
                limit = expansion_limit(size, max_uncompressed)
                stream: Any = BoundedStream(opened, path, limit) if decompress else opened
                yield stream, lambda: raw.tell() / (size or 1)
    except OSError as error:
        # gzip and bz2 raise an OSError without strerror for bytes that are not theirs.
        if isinstance(error, gzip.BadGzipFile) or error.strerror is None:
            raise DataError(f"{path}: not a {path.suffix} file, or a damaged one ({error})") from error
        raise DataError(f"{path}: {error.strerror}") from error


def read_chunks(path: Path, max_uncompressed: int | None = None, *, pipes: bool = False) -> Generator[bytes]:
    """Read a file, decompressed if its name says so, in chunks as they arrive.

    max_uncompressed   bytes to which a compressed file may expand, instead of `expansion_limit`
    pipes              read pipes and devices, too
    """
    with open_binary(path, max_uncompressed, pipes=pipes) as (stream, _):
        read = getattr(stream, "read1", stream.read)  # `read` of an unbuffered file returns what one read gives, too
        try:
            while chunk := read(READ_BYTES):
                yield chunk
        except DECOMPRESSION_ERRORS as error:
            raise damaged(path, error) from error


class BoundedStream(io.RawIOBase):
    """A stream of decompressed bytes that ends with a `DataError` after `limit` bytes."""

    def __init__(self, stream: IO[bytes], source: object, limit: int) -> None:
        self._stream, self._source, self._limit, self.n_bytes = stream, source, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._count(self._stream.readinto(buffer))  # type: ignore[attr-defined]

    def read1(self, size: int) -> bytes:
        """What one read of the compressed file gives, at most `size` bytes."""
        data: bytes = self._stream.read1(size)  # type: ignore[attr-defined]
        self._count(len(data))
        return data

    def _count(self, n_read: int) -> int:
        self.n_bytes += n_read
        if self.n_bytes > self._limit:
            raise expansion_error(self._source, self._limit)
        return n_read


def read_all(path: Path, max_uncompressed: int | None = None) -> bytes:
    """The whole content of a file, decompressed."""
    with open_binary(path, max_uncompressed) as (stream, _):
        try:
            return b"".join(iter(lambda: stream.read(READ_BYTES), b""))
        except DECOMPRESSION_ERRORS as error:
            raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: the {path.suffix} data is damaged or ends too early ({error})")


def uncompressed_name(path: Path) -> str:
    """The name of a file in lower case, without the suffix of its compression."""
    return (path.stem if path.suffix.lower() in OPEN_COMPRESSED else path.name).lower()


def excerpt(text: bytes) -> str:
    """The beginning of some bytes of a file, quoted for an error message: one line, whatever the bytes are."""
    cut = "..." if len(text) > MAX_EXCERPT_BYTES else ""
    return repr(text[:MAX_EXCERPT_BYTES].decode("utf-8", "backslashreplace") + cut)
