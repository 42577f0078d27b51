"""Read and write sparse text: the formats of the XML Repository and of svmlight (multi-label), `l1,l2 f:v f:v`.

    3 5 4            optional header: points, features, labels; also as a comment (`# 3 5 4`), as written for svmlight
    0,2 1:0.5 4:1    labels, then features
     3:2             a point without labels begins with a space (or with its first feature)
    1                a point without features

A line of spaces is a point without labels and without features. An empty line is not a point, unless the header's
number of points includes the empty lines. `#` begins a comment. Ids start at 0, or at 1 with `one_based`. A repeated
label counts once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from holobind._files import atomic_write
from holobind._types import CsrArray, ProgressCallback
from holobind.data import cache as parsed_cache
from holobind.data._block_reader import HEADER, MAX_IDS, parse_file, parse_lines, read_counts, split_from_arrays
from holobind.data.csr import check_ids, ids_ascend, min_max
from holobind.data.dataset import Split
from holobind.data.files import OPEN_COMPRESSED, check_is_file, expansion_limit, id_limit
from holobind.errors import DataError

__all__ = ["HEADER", "parse_features", "read", "read_counts", "write", "write_blocks"]

MIN_BYTES_TO_CACHE = 1 << 20  # parsing a smaller file takes no noticeable time
ROWS_PER_WRITE = 4096


def read(
    path: Path,
    *,
    one_based: bool = False,
    cache: bool = True,
    memory_map: bool = False,
    max_uncompressed: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> tuple[Split, bool]:
    """Read one file. Gives the split, and whether a header declares the number of features and labels.

    memory_map   leave the matrices in the cache file; the operating system loads the pages that are used
    """
    check_is_file(path)
    if not cache:
        return parse_file(path, one_based, on_progress, max_uncompressed=max_uncompressed)[:2]
    cached = parsed_cache.cache_path(path, one_based=one_based)
    try:
        key = parsed_cache.fingerprint(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    max_ids = _max_ids(path, max_uncompressed)
    if found := _read_cached(cached, key, memory_map, max_ids):
        return found
    spill_dir = parsed_cache.writable_dir() if memory_map else None
    split, has_header, n_bytes = parse_file(
        path, one_based, on_progress, spill_dir=spill_dir, max_uncompressed=max_uncompressed
    )
    if (n_bytes >= MIN_BYTES_TO_CACHE or memory_map) and parsed_cache.fingerprint(path) == key:
        arrays = {"X_data": split.X.data, "X_indices": split.X.indices, "X_indptr": split.X.indptr}
        arrays |= {"Y_indices": split.Y.indices, "Y_indptr": split.Y.indptr}
        shape = [len(split), split.X.shape[1], split.Y.shape[1]]
        parsed_cache.write(cached, key, {"shape": shape, "has_header": has_header}, arrays)
        if memory_map and (found := _read_cached(cached, key, memory_map, max_ids)):
            return found
    return split, has_header


def _max_ids(path: Path, max_uncompressed: int | None) -> int:
    """The number of features or labels that a file may have, without reading it."""
    n_bytes = path.stat().st_size
    if path.suffix.lower() in OPEN_COMPRESSED:
        n_bytes = expansion_limit(n_bytes, max_uncompressed)
    return min(id_limit(n_bytes, max_uncompressed), MAX_IDS)


def _read_cached(
    cached: Path, key: dict[str, Any], memory_map: bool, max_ids: int = MAX_IDS
) -> tuple[Split, bool] | None:
    """What the cache has of a file; None if that is no valid pair of matrices, whoever wrote it."""
    found = parsed_cache.read(cached, key, memory_map=memory_map)
    if found is None:
        return None
    metadata, arrays = found
    try:
        n_points, n_features, n_labels = metadata["shape"]
        if not all(type(n) is int and 0 <= n <= max_ids for n in (n_features, n_labels)):
            return None
        if type(n_points) is not int or n_points != len(arrays["X_indptr"]) - 1:
            return None
        split = split_from_arrays(arrays, (n_points, n_features, n_labels))
        for X in (split.X, split.Y):
            check_ids(X, str(cached))
        finite = bool(np.isfinite(min_max(split.X.data)).all())  # a NaN is the smallest and the largest
        valid = ids_ascend(split.X) and ids_ascend(split.Y) and split.X.dtype == np.float32 and finite
        return (split, bool(metadata["has_header"])) if valid else None
    except (KeyError, TypeError, ValueError):
        return None


def parse_features(lines: Sequence[bytes], n_features: int, source: str, first_line: int = 1) -> CsrArray:
    """Parse the features of some lines of a stream; labels may be present and are ignored.

    lines                without their line ends
    source, first_line   the name of the stream and the number of its first line, for error messages

    Every line is a row: an empty line has no features, and a comment is an error.
    """
    for number, line in enumerate(lines, first_line):
        if line.startswith(b"#"):
            raise DataError(f"{source}:{number}: a comment; expected a line like '1:0.5 4:1'")
    return parse_lines(lines, n_features, source, first_line).X


def write(path: Path, split: Split, *, comment_header: bool = False) -> None:
    """Write one split. A suffix .gz, .xz or .bz2 compresses it. Reading it back gives identical matrices."""
    write_blocks(path, (len(split), split.X.shape[1], split.Y.shape[1]), [split], comment_header=comment_header)


def write_blocks(
    path: Path, shape: tuple[int, int, int], blocks: Iterable[Split], *, comment_header: bool = False
) -> None:
    """`write` of a split that comes in blocks of rows; `shape` has its numbers of points, features and labels."""
    compress = OPEN_COMPRESSED.get(path.suffix.lower())
    header = " ".join(map(str, shape)) + "\n"
    with atomic_write(path) as raw, compress(raw, "wb") if compress else _unclosed(raw) as file:
        file.write((("# " if comment_header else "") + header).encode())
        for split in blocks:
            for first in range(0, len(split), ROWS_PER_WRITE):
                rows = slice(first, first + ROWS_PER_WRITE)
                file.write(_lines(split.X[rows], split.Y[rows]))


@contextmanager
def _unclosed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    yield file


def _lines(X: CsrArray, Y: CsrArray) -> bytes:
    # numpy prints a float32 with the fewest digits that distinguish it from every other float32.
    distinct, inverse = np.unique(X.data.view(np.int32), return_inverse=True)
    printed = np.array([v.removesuffix(".0") for v in distinct.view(np.float32).astype(np.str_).tolist()], object)
    features = [f"{f}:{v}" for f, v in zip(X.indices.tolist(), printed[inverse].tolist(), strict=True)]
    labels = list(map(str, Y.indices.tolist()))
    x_ends, y_ends = X.indptr.tolist(), Y.indptr.tolist()
    rows = (
        f"{','.join(labels[y_first:y_last])} {' '.join(features[x_first:x_last])}".rstrip(" ") or " "
        for (x_first, x_last), (y_first, y_last) in zip(pairwise(x_ends), pairwise(y_ends), strict=True)
    )
    return ("\n".join(rows) + "\n").encode()
