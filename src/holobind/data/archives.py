"""Unpack archives that are not trusted: files and folders only, below one folder, within a limit of bytes."""

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_IFMT, S_ISDIR, S_ISREG
from typing import IO, Any

from holobind.data.files import DECOMPRESSION_ERRORS, READ_BYTES, BoundedStream, expansion_error, expansion_limit
from holobind.data.npz import check_members
from holobind.errors import DataError

MAX_MEMBERS = 10_000  # of an archive
COMPRESSION_MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def unpack(archive: Path, to: Path, max_uncompressed: int | None = None) -> None:
    """Unpack a .zip or .tar archive, also a compressed one, into the new folder `to`.

    Refused are absolute paths, paths with `..`, links, devices, encrypted files, and archives that expand to more than
    100 times their size and more than 64 MB, unless `max_uncompressed` allows more.
    """
    try:
        to.mkdir()
        members = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        limit = expansion_limit(archive.stat().st_size, max_uncompressed)
        n_bytes = 0
        for number, (name, content) in enumerate(members(archive, max_uncompressed), 1):
            if number > MAX_MEMBERS:
                raise DataError(f"{archive}: it has more than {MAX_MEMBERS} files")
            target = to / _relative_path(archive, name)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                while chunk := content.read(READ_BYTES):
                    n_bytes += len(chunk)
                    if n_bytes > limit:
                        raise expansion_error(archive, limit)
                    file.write(chunk)
    except DataError:
        raise
    except (zipfile.BadZipFile, tarfile.TarError, *DECOMPRESSION_ERRORS, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{archive}: a damaged archive ({' '.join(str(error).split())[:200]})") from error


def _relative_path(archive: Path, name: str) -> PurePosixPath:
    """The path of a member, if it stays below the folder on every system."""
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    if path.is_absolute() or windows.drive or windows.root or ".." in path.parts + windows.parts:
        raise DataError(f"{archive}: {name[:60]!r} would be written outside of its folder; the archive is refused")
    return path


def _zip_members(archive: Path, max_uncompressed: int | None) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as zip_file:
        check_members(zip_file, archive, max_uncompressed)
        for member in zip_file.infolist():
            if not member.filename:
                raise DataError(f"{archive}: a file in it has no name; the archive is refused")
            mode = member.external_attr >> 16
            if S_IFMT(mode) and not S_ISREG(mode) and not S_ISDIR(mode):
                raise _special_file(archive, member.filename)
            if member.is_dir():
                yield member.filename, None
            else:
                with zip_file.open(member) as content:
                    yield member.filename, content


def _tar_members(archive: Path, max_uncompressed: int | None) -> Iterator[tuple[str, IO[bytes] | None]]:
    with _decompressed(archive, max_uncompressed) as stream:
        try:
            tar_file = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115
        except tarfile.TarError as error:
            raise DataError(f"{archive}: neither a .zip nor a .tar archive; is the download complete?") from error
        with tar_file:
            for member in tar_file:
                if not member.isdir() and (not member.isreg() or member.issparse()):
                    raise _special_file(archive, member.name)
                yield member.name, None if member.isdir() else tar_file.extractfile(member)


@contextlib.contextmanager
def _decompressed(archive: Path, max_uncompressed: int | None) -> Iterator[Any]:
    with archive.open("rb") as raw:
        start = raw.read(8)
        raw.seek(0)
        decompress = next((opened for magic, opened in COMPRESSION_MAGIC.items() if start.startswith(magic)), None)
        if decompress is None:
            yield raw
            return
        limit = expansion_limit(archive.stat().st_size, max_uncompressed)
        with decompress(raw, "rb") as stream:
            yield BoundedStream(stream, archive, limit)


def _special_file(archive: Path, name: str) -> DataError:
    return DataError(f"{archive}: {name[:60]!r} is a link or a device, not a file or a folder; the archive is refused")
