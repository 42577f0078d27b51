"""Read scipy's sparse matrices (.npz) from files that are not trusted.

numpy allocates an array by its header and scipy's compiled conversions trust their indices, so sizes are compared with
the bytes of the file before anything is read, and indices with the shape before anything is converted.
"""

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from holobind._types import CsrArray
from holobind.data.csr import canonical_csr, check_ids, from_arrays
from holobind.data.files import check_is_file, expansion_error, expansion_limit, id_limit
from holobind.errors import DataError

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile expands the others without a limit
ENCRYPTED = 1  # a bit of the flags of a file in a zip archive


def read_npz(path: Path, labels: bool = False, max_uncompressed: int | None = None) -> CsrArray:
    """A matrix of features, in float32, or of labels, which become ones."""
    what = "labels" if labels else "features"
    if not path.exists():
        raise DataError(f"{path}: no such file; the features and the labels are a pair of files")
    check_is_file(path)
    try:
        matrix = _load(path, max_uncompressed)
    except DataError:
        raise
    except Exception as error:  # damaged bytes make numpy and zipfile raise many types of exception
        raise DataError(f"{path}: not a scipy sparse matrix ({' '.join(str(error).split())[:200]})") from error
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path}: the {what} contain nan or inf")
    n_entries = matrix.nnz
    matrix.sum_duplicates()
    if matrix.nnz != n_entries:
        raise DataError(f"{path}: a row has the same column twice")
    if labels:
        matrix = canonical_csr(matrix)
        return from_arrays(np.ones(matrix.nnz, np.int32), matrix.indices, matrix.indptr, matrix.shape)
    with np.errstate(over="ignore"):
        data = matrix.data.astype(np.float32)
    if not np.isfinite(data).all():
        raise DataError(f"{path}: a value is too large for float32")
    return from_arrays(data, matrix.indices, matrix.indptr, matrix.shape)


def check_members(archive: zipfile.ZipFile, source: Path, max_uncompressed: int | None) -> int:
    """Refuse a zip archive that claims to be too large, or that cannot be read within its claim; gives the claim."""
    limit = expansion_limit(source.stat().st_size, max_uncompressed)
    total = sum(member.file_size for member in archive.infolist())
    if total > limit:
        raise expansion_error(source, limit)
    for member in archive.infolist():
        if member.flag_bits & ENCRYPTED:
            raise DataError(f"{source}: {member.filename[:60]!r} is encrypted; unpack it, and give the files")
        if member.compress_type not in COMPRESSIONS:
            raise DataError(f"{source}: {member.filename[:60]!r} has a compression other than deflate; pack it again")
    return total


def _load(path: Path, max_uncompressed: int | None) -> Any:
    with zipfile.ZipFile(path) as archive:
        n_bytes = check_members(archive, path, max_uncompressed)
        for member in archive.infolist():
            with archive.open(member) as file:
                if _claimed_bytes(file) > member.file_size:
                    raise DataError(f"{path}: the array {member.filename[:60]!r} claims more bytes than the file has")
    with np.load(path, allow_pickle=False) as arrays:
        shape = arrays["shape"]
        if shape.shape != (2,) or shape.dtype.kind not in "iu":
            raise DataError(f"{path}: expected a matrix, found one of shape {shape.tolist()!r:.60}")
        limit = id_limit(n_bytes, max_uncompressed)
        if int(shape.max()) > limit:
            raise DataError(
                f"{path}: the shape {shape.tolist()} has more than {limit:,} rows or columns; is it damaged?"
            )
    matrix: Any = sparse.load_npz(path)
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{path}: expected a matrix of numbers, found {matrix.dtype}")
    if matrix.format == "dia":
        matrix = matrix.tocoo()
    check_ids(matrix, str(path))  # before scipy's compiled conversion
    return sparse.csr_array(matrix)


def _claimed_bytes(file: IO[bytes]) -> int:
    """The size of an array by its header."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"an array has version {version} of its format, which matrices do not need")
    shape, _, dtype = readers[version](file)
    return math.prod(shape) * dtype.itemsize
