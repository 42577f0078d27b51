"""Files of ours: one `.safetensors` with tensors and a JSON header. No pickle; a hostile file is refused.

The header is the value of "holobind" in safetensors' own metadata:

    {"kind": "vocabulary", "version": 1, ...}

safetensors itself checks that its header is short and that every tensor lies within the file, so nothing larger than
the file is ever allocated; but for lists of names, which are stored as lines, deflated (`packed`).
"""

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holobind.errors import DataError, FileError

KEY = "holobind"


def write(path: str | Path, kind: str, version: int, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a file whole or not at all: under another name first, then renamed."""
    path = Path(path)
    text = json.dumps({"kind": kind, "version": version, **header}, ensure_ascii=False)
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
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
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
