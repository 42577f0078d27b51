"""The file format of models, checkpoints and vocabularies: a `.safetensors` file with a JSON header. It has no pickle.

The header is the value of "holobind" in the metadata of safetensors:

    {"kind": "vocabulary", "version": 2, ..., "compressed": {"name": ["torch.int32", [10, 100], "gaps"]}}

safetensors checks that its own header is short and that every tensor lies within the file, so a hostile file cannot
make it allocate more than the size of the file. Compressed content has bounds of its own. The header lists the tensors
that are compressed with zlib, with dtype, shape and `Filter`; none may be MAX_COMPRESSION_RATIO times as large as in
the file, and all together not more than MAX_UNPACKED_RATIO times as large as the file, if that is more than
MIN_UNPACKED_BYTES.
The header has a checksum of all tensors, by which damage is noticed; a file without one is read all the same.
Lists of strings are stored as compressed lines (`pack_lines`) of at most 1 KB per string.
"""

import json
import math
import zlib
from collections.abc import Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holobind._checks import check_names
from holobind._files import atomic_path, write_errors
from holobind._processes import ALONE, Processes
from holobind.errors import DataError, FileError

METADATA_KEY = "holobind"
CHECKSUM = "crc32"
ZLIB_LEVEL = 6
SAMPLE_BYTES, SAMPLE_PARTS = 1 << 20, 8  # of a tensor, by which its filter and zlib's strategy are chosen
MAX_COMPRESSION_RATIO = 256
MAX_BYTES_PER_LINE = 1 << 10  # of `pack_lines`, on average
MIN_LINES_BYTES = 64 << 10  # always allowed, however few lines there are
MIN_UNPACKED_BYTES = 1 << 28  # that the compressed tensors of a file of any size may have together
MAX_UNPACKED_RATIO = 32  # of that total and the size of the file, for larger ones
MAX_DIMENSIONS = 8  # of a tensor
MAX_HEADER_DEPTH = 64  # levels of lists and objects in the JSON
COMPRESSIBLE_DTYPES = {
    str(dtype): dtype for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16)
}
HOW_TO_RECREATE = {
    "model": "train it again",
    "checkpoint": "start the training again",
    "vocabulary": "build it again",
}


def write(
    path: str | Path,
    kind: str,
    version: int,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    compress: Collection[str] = (),
    processes: Processes = ALONE,
) -> None:
    """Write a file atomically. The same header and tensors give the same bytes.

    compress    names of tensors to compress; each is compressed only if that makes it smaller
    processes   that call it together with the same arguments: they share the tensors to compress, the first one writes
    """
    path = Path(path)
    tensors, compressed = dict(tensors), {}
    shared = _compress_all({name: tensors[name] for name in compress}, processes)
    if processes.rank:
        return
    for name, (used, data) in shared.items():
        if 0 < len(data) < tensors[name].nbytes:
            compressed[name] = str(tensors[name].dtype), list(tensors[name].shape), used
            tensors[name] = torch.from_numpy(data)
    stored = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    own = {"kind": kind, "version": version, **header, "compressed": compressed, CHECKSUM: checksum(stored)}
    text = json.dumps(own, ensure_ascii=False)
    try:
        with write_errors(path), atomic_path(path) as part:
            save_file(stored, part, metadata={METADATA_KEY: text})
    except SafetensorError as error:
        raise FileError(f"{path} cannot be written ({error}); choose another path") from error


def read(path: str | Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file of this kind and format version."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path} is not a file; name one written by holobind")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(METADATA_KEY)
            if text is None:
                raise FileError(
                    f"{path} is a safetensors file, but not one of holobind's: its header has no {METADATA_KEY!r}"
                )
            header = json.loads(text)
            _check(path, header, kind, version)
            _check_unpacked_size(path, header.get("compressed"))
            # Copies: a mapped file that is overwritten in place would end the process (SIGBUS), or change the model.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if header.pop(CHECKSUM, None) not in (None, checksum(tensors)):
                raise FileError(f"{path} is damaged: its content does not have the header's checksum; get it again")
            return header, tensors | _decompress_all(path, header.pop("compressed", {}), tensors)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is not a safetensors file, or damaged ({error}); get it again") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} has a header that is not JSON ({type(error).__name__}); get it again") from error


def checksum(tensors: dict[str, Tensor]) -> int:
    """CRC-32 of the bytes of all tensors, in the order of their names."""
    found = 0
    for name in sorted(tensors):
        flat = tensors[name].cpu().reshape(-1)
        flat = flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)
        found = zlib.crc32(flat.view(torch.uint8).numpy().data, found)
    return found


def _check(path: Path, header: object, kind: str, version: int) -> None:
    if _is_deeper(header, MAX_HEADER_DEPTH):
        raise FileError(f"{path} has a header of more than {MAX_HEADER_DEPTH} levels; get it again")
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else type(header).__name__
        raise FileError(f"{path} holds {str(found)[:40]!r}, not a {kind}")
    found = header.get("version")
    if type(found) is not int or not 1 <= found < 1 << 31:
        raise FileError(f"{path} has no valid format version, but {found!r:.20}; get it again")
    if found < version:
        advice = HOW_TO_RECREATE.get(kind, "create it again")
        raise FileError(
            f"{path} was written by an older holobind (format version {found}); "
            f"this holobind reads version {version}: {advice}"
        )
    if found > version:
        raise FileError(
            f"{path} was written by a newer holobind (format version {found}); "
            f"this holobind reads version {version}: update holobind"
        )


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether JSON has more than `depth` levels of lists and objects: recursive code fails at some hundred."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        children = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
        level = [child for child in children if isinstance(child, dict | list)]
    return bool(level)


class Filter(StrEnum):
    """What is done to a tensor before zlib compresses it, as by the filters of HDF5 and Parquet.

    planes   the first bytes of all elements come before the second ones, and so on
    gaps     the same for the differences between neighbours, which are small where integers ascend
    """

    NONE = "none"
    PLANES = "planes"
    GAPS = "gaps"

    def allows(self, dtype: np.dtype[Any]) -> bool:
        return self is Filter.NONE or (dtype.itemsize > 1 and (self is Filter.PLANES or dtype.kind in "iu"))

    def pack(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        """The bytes to compress.  Shapes: (n) -> (n itemsize)"""
        if self is Filter.NONE:
            return array.view(np.uint8)
        if self is Filter.GAPS:
            bits = array.view(f"u{array.itemsize}")  # unsigned differences wrap, and sums of them wrap back
            array = np.diff(bits, prepend=bits.dtype.type(0))
        return array.view(np.uint8).reshape(-1, array.itemsize).T.reshape(-1)

    def unpack(self, data: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The inverse of `pack`, as an array of its own."""
        if self is Filter.NONE:
            return data.copy().view(dtype)
        array = data.reshape(dtype.itemsize, -1).T.copy().reshape(-1).view(f"u{dtype.itemsize}")
        if self is Filter.GAPS:
            np.cumsum(array, dtype=array.dtype, out=array)
        return array.view(dtype)


FILTERS = tuple(Filter)
# zlib's default strategy finds repeated strings, the other one only runs of a byte, for which it needs shorter codes.
ENCODINGS = (
    (Filter.NONE, zlib.Z_DEFAULT_STRATEGY),
    (Filter.NONE, zlib.Z_RLE),
    (Filter.PLANES, zlib.Z_DEFAULT_STRATEGY),
    (Filter.GAPS, zlib.Z_DEFAULT_STRATEGY),
)


def _compress_all(tensors: dict[str, Tensor], processes: Processes) -> dict[str, tuple[Filter, NDArray[np.uint8]]]:
    """The filter of each tensor, and the tensor compressed. Only the first process has all results."""
    if not tensors:
        return {}
    names = list(tensors)
    results = {i: _compressed(tensors[names[i]]) for i in processes.queue(range(len(names)), _sizes(tensors))}
    filters, lengths = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    for i, (used, data) in results.items():
        filters[i], lengths[i] = FILTERS.index(used), len(data)
    processes.sum(filters)
    processes.sum(lengths)
    to_first = np.concatenate([np.empty(0, np.uint8), *(data for _, data in results.values())])
    order = processes.concatenate(np.array(list(results), np.int64))
    results.clear()
    received = np.concatenate(processes.swap([to_first, *[to_first[:0]] * (processes.size - 1)]))
    cuts = np.split(received, np.cumsum(lengths[order])[:-1])
    found = dict(zip(order.tolist(), cuts, strict=True))
    return {name: (FILTERS[int(filters[i])], found[i]) for i, name in enumerate(names)}


def _sizes(tensors: dict[str, Tensor]) -> list[int]:
    return [tensor.nbytes for tensor in tensors.values()]


def _compressed(tensor: Tensor) -> tuple[Filter, NDArray[np.uint8]]:
    """The tensor by the encoding that is shortest for a sample of it, unless `read` would refuse its ratio."""
    array = tensor.contiguous().reshape(-1).numpy()
    encodings = [encoding for encoding in ENCODINGS if encoding[0].allows(array.dtype)]
    sample = array if array.nbytes <= SAMPLE_BYTES else _sample(array)
    encodings.sort(key=lambda encoding: len(_deflated(sample, *encoding)))
    for used, strategy in encodings:
        data = _deflated(array, used, strategy)
        if array.nbytes < MAX_COMPRESSION_RATIO * len(data):
            return used, np.frombuffer(bytearray(data), np.uint8)
    return Filter.NONE, np.empty(0, np.uint8)


def _sample(array: NDArray[Any]) -> NDArray[Any]:
    """Parts of an array, evenly spaced.  Shapes: (n) -> (m)"""
    size = SAMPLE_BYTES // SAMPLE_PARTS // array.itemsize
    starts = np.linspace(0, len(array) - size, SAMPLE_PARTS).astype(int)
    return np.concatenate([array[start : start + size] for start in starts])


def _deflated(array: NDArray[Any], used: Filter, strategy: int) -> bytes:
    compressor = zlib.compressobj(ZLIB_LEVEL, strategy=strategy)
    return compressor.compress(used.pack(array).data) + compressor.flush()


def _decompress_all(path: Path, compressed: object, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that the header lists as compressed. What the header claims is checked before memory is allocated."""
    found = {}
    for name, claim in compressed.items() if isinstance(compressed, dict) else [("its header", None)]:
        data, tensor = tensors.get(name), None
        match claim:
            case [dtype_name, shape, used] if data is not None and data.dtype == torch.uint8 and used in FILTERS:
                n_bytes = _unpacked_size(dtype_name, shape)
                if 0 < n_bytes < MAX_COMPRESSION_RATIO * data.numel():
                    tensor = _decompress(data, n_bytes, COMPRESSIBLE_DTYPES[dtype_name], shape, Filter(used))
        if tensor is None:
            raise FileError(f"{path} is damaged: {name[:60]} cannot be decompressed; get it again")
        found[name] = tensor
    return found


def _check_unpacked_size(path: Path, compressed: object) -> None:
    """Refuse a file whose compressed tensors claim too much memory together; each has a bound of its own."""
    claims = compressed.values() if isinstance(compressed, dict) else ()
    total = sum(_unpacked_size(*claim[:2]) for claim in claims if isinstance(claim, list) and len(claim) == 3)
    file_bytes = path.stat().st_size
    allowed = max(MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO * file_bytes)
    if total > allowed:
        raise FileError(
            f"{path} claims {min(total, 1 << 80) / 1e6:.0f} MB in a file of {file_bytes / 1e6:.1f} MB, of which "
            f"{allowed / 1e6:.0f} MB are allowed: it cannot be decompressed; get it again"
        )


def _unpacked_size(dtype_name: object, shape: object) -> int:
    """The bytes of a tensor that a header claims; 0 if it claims no tensor that can be compressed."""
    if not isinstance(dtype_name, str) or dtype_name not in COMPRESSIBLE_DTYPES or not isinstance(shape, list):
        return 0
    if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        return 0
    return math.prod(shape) * COMPRESSIBLE_DTYPES[dtype_name].itemsize


def _decompress(compressed: Tensor, n_bytes: int, dtype: torch.dtype, shape: list[int], used: Filter) -> Tensor | None:
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(compressed.numpy().tobytes(), n_bytes + 1)
    except zlib.error:
        return None
    numpy_dtype = np.dtype(str(dtype).removeprefix("torch."))
    complete = len(data) == n_bytes and decompressor.eof and not decompressor.unused_data
    if not (complete and used.allows(numpy_dtype)):
        return None
    return torch.from_numpy(used.unpack(np.frombuffer(data, np.uint8), numpy_dtype)).view(shape)


def pack_lines(names: Sequence[str]) -> Tensor:
    """Strings as compressed UTF-8 lines.  Shapes: -> (bytes) uint8"""
    return torch.frombuffer(bytearray(zlib.compress(encode_lines(names), ZLIB_LEVEL)), dtype=torch.uint8)


def encode_lines(names: Sequence[str]) -> bytes:
    """Strings as UTF-8 lines; a DataError if they cannot be stored so. `learn` asks before it begins."""
    check_names(names)
    lines = "\n".join(names).encode()
    if len(lines) > _max_lines_bytes(len(names)):
        raise DataError(f"names of {len(lines) / len(names):.0f} bytes each are too long to be stored; shorten them")
    return lines


def unpack_lines(lines: Tensor, n: int) -> list[str] | None:
    """The n strings that `pack_lines` stored, or None if the tensor does not hold n strings."""
    decompressor = zlib.decompressobj()
    allowed = min(_max_lines_bytes(n), max(MIN_UNPACKED_BYTES, MAX_COMPRESSION_RATIO * lines.numel()))
    try:
        text = decompressor.decompress(lines.numpy().tobytes(), allowed + 1).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    names = text.split("\n")
    return names if decompressor.eof and not decompressor.unused_data and len(names) == n else None


def _max_lines_bytes(n: int) -> int:
    """The limit for n strings; without it zlib could expand a file to a thousand times its size in memory."""
    return MIN_LINES_BYTES + n * MAX_BYTES_PER_LINE


def check_tensors(what: str, expected: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Refuse tensors that lack a name, or have another name, shape or type than expected.

    Floating-point tensors may have any precision: those in `found` are converted to the expected one, in place.
    """
    if expected.keys() != found.keys():
        name = sorted(expected.keys() ^ found.keys())[0]
        raise FileError(f"its {what} {'lacks' if name in expected else 'has a strange'} {name[:60]!r}")
    for name, tensor in expected.items():
        if tensor.shape != found[name].shape:
            shapes = f"{tuple(found[name].shape)}; the header implies {tuple(tensor.shape)}"
            raise FileError(f"its {what}.{name} has shape {shapes}")
        if tensor.is_floating_point():
            found[name] = finite_numbers(f"{what}.{name}", found[name]).to(tensor.dtype)
        elif tensor.dtype != found[name].dtype:
            raise FileError(f"its {what}.{name} has {found[name].dtype}; it should be {tensor.dtype}")


def finite_numbers(name: str, tensor: Tensor) -> Tensor:
    """The tensor, if it has finite floating-point numbers only."""
    if not tensor.is_floating_point() or not is_finite(tensor):
        raise FileError(f"its {name[:60]} holds something else than finite numbers")
    return tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite: by the extremes, which a NaN takes over, as a mask would need memory."""
    return not tensor.numel() or all(bool(bound.isfinite()) for bound in tensor.float().aminmax())
