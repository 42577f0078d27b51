"""Open files that may be compressed, and replace files atomically."""

import bz2
import contextlib
import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from holobind.errors import DataError

OPEN_COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
BOM = b"\xef\xbb\xbf"  # the byte order mark that some programs write at the start of a UTF-8 file
MAX_EXCERPT_BYTES = 40


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], float]]]:
    """Open a file for reading and decompress it if its suffix is that of a compressed file.

    Gives the stream of bytes, and a function that returns the fraction of the file that has been read.
    """
    try:
        with path.open("rb", buffering=0) as raw:
            size = os.fstat(raw.fileno()).st_size or 1
            decompress = OPEN_COMPRESSED.get(path.suffix.lower())
            with decompress(raw, "rb") if decompress else raw as stream:
                yield stream, lambda: raw.tell() / size
    except OSError as error:
        # gzip and bz2 raise an OSError without strerror for bytes that are not theirs.
        if isinstance(error, gzip.BadGzipFile) or error.strerror is None:
            raise DataError(f"{path}: not a {path.suffix} file, or a damaged one ({error})") from error
        raise DataError(f"{path}: {error.strerror}") from error


def uncompressed_name(path: Path) -> str:
    """The name of a file in lower case, without the suffix of its compression."""
    return (path.stem if path.suffix.lower() in OPEN_COMPRESSED else path.name).lower()


@contextlib.contextmanager
def atomic_write(target: Path, mode: str = "wb") -> Any:
    """Write a temporary file that replaces `target` once it is complete; after an error nothing is left behind."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8", newline=None) as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp makes files that only their owner can read
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def excerpt(text: bytes) -> str:
    """The beginning of some bytes of a file, quoted for an error message: one line, whatever the bytes are."""
    cut = "..." if len(text) > MAX_EXCERPT_BYTES else ""
    return repr(text[:MAX_EXCERPT_BYTES].decode("utf-8", "backslashreplace") + cut)
