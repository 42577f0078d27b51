"""Files of ours: one `.safetensors` with tensors and a JSON header. No pickle; a hostile file is refused.

The header is the value of "holobind" in safetensors' own metadata:

    {"kind": "vocabulary", "version": 1, ...}

safetensors itself checks that its header is short and that every tensor lies within the file, so nothing larger than
the file is ever allocated; but for what is deflated: lists of names, stored as lines (`packed`), and tensors that the
header names, with their types and shapes, under "deflated", none of which may be MOST times as large as in the file.
"""

import json
import math
import os
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holobind.errors import DataError, FileError

KEY = "holobind"
MOST = 256
DTYPES = {str(dtype): dtype for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.float16)}


def write(
    path: str | Path,
    kind: str,
    version: int,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    deflate: Collection[str] = (),
) -> None:
    """Write a file whole or not at all: under another name first, then renamed. Some tensors may be deflated."""
    path = Path(path)
    tensors, deflated = dict(tensors), {}
    for name in deflate:
        small = _deflate(tensors[name].contiguous().numpy().tobytes())
        if len(small) < tensors[name].nbytes < MOST * len(small):
            deflated[name] = str(tensors[name].dtype), list(tensors[name].shape)
            tensors[name] = torch.frombuffer(bytearray(small), dtype=torch.uint8)
    text = json.dumps({"kind": kind, "version": version, **header, "deflated": deflated}, ensure_ascii=False)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, part, metadata={KEY: text})
        part.replace(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror or error}); name another place") from error
    except SafetensorError as error:
        raise FileError(f"{path} cannot be written ({error}); name another place") from error
    finally:
        part.unlink(missing_ok=True)


def read(path: str | Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and tensors of a file of this kind, no newer than `version`."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path} is not a file; name one written by holobind")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise FileError(f"{path} is a safetensors file, but not one of holobind's: its header has no {KEY!r}")
            header = json.loads(text)
            _check(path, header, kind, version)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return header, tensors | _inflated(path, header.pop("deflated", {}), tensors)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is not a safetensors file, or damaged ({error}); get it again") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} has a header that is not JSON ({type(error).__name__}); get it again") from error


def _check(path: Path, header: object, kind: str, version: int) -> None:
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else type(header).__name__
        raise FileError(f"{path} holds {str(found)[:40]!r}, not a {kind}")
    if not isinstance(header.get("version"), int) or not 1 <= header["version"] <= version:
        found = str(header.get("version"))[:20]
        raise FileError(f"{path} has format version {found}; this holobind reads 1 to {version}: update it")


def _deflate(data: bytes) -> bytes:
    """By repeated strings, or by runs of one byte alone: whichever is smaller."""
    tried = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE):
        packing = zlib.compressobj(6, strategy=strategy)
        tried.append(packing.compress(data) + packing.flush())
    return min(tried, key=len)


def _inflated(path: Path, deflated: object, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, said in deflated.items() if isinstance(deflated, dict) else [("its header", None)]:
        small, tensor = tensors.get(name), None
        match said:
            case [str(kind), list(shape)] if kind in DTYPES and all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
                size = math.prod(shape) * DTYPES[kind].itemsize
                if small is not None and small.dtype == torch.uint8 and 0 < size < MOST * small.numel():
                    tensor = _inflate(small, size, DTYPES[kind], shape)
        if tensor is None:
            raise FileError(f"{path} is damaged: {name[:60]} cannot be unpacked; get it again")
        found[name] = tensor
    return found


def _inflate(small: Tensor, size: int, dtype: torch.dtype, shape: list[int]) -> Tensor | None:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(small.numpy().tobytes(), size + 1)
    except zlib.error:
        return None
    whole = len(data) == size and unpacking.eof and not unpacking.unused_data
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape) if whole else None


def packed(names: Sequence[str]) -> Tensor:
    """Names as UTF-8 lines, deflated.  Shapes: -> (bytes) uint8"""
    if not all(isinstance(name, str) for name in names) or any("\n" in name for name in names):
        raise DataError("a name that is no text, or has a line break in it, cannot be stored; rename it")
    try:
        lines = "\n".join(names).encode()
    except UnicodeEncodeError as error:
        raise DataError("a name with half a surrogate pair in it cannot be stored; rename it") from error
    if len(lines) > _room(len(names)):
        raise DataError(f"names of {len(lines) / len(names):.0f} bytes each are too long to be stored; shorten them")
    return torch.frombuffer(bytearray(zlib.compress(lines, 6)), dtype=torch.uint8)


def unpacked(lines: Tensor, n: int) -> list[str] | None:
    """The n names that were packed, or None if these are not they; never more than `_room` of memory is filled."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(lines.numpy().tobytes(), _room(n) + 1).decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    names = text.split("\n")
    return names if unpacking.eof and not unpacking.unused_data and len(names) == n else None


def _room(n: int) -> int:
    """Bytes that n names may take: what is deflated could otherwise unpack to a thousand times the file."""
    return (64 << 10) + (n << 10)
