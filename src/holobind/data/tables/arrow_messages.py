"""Check the messages of an Arrow file or stream before pyarrow reads them.

A message is a flatbuffer and a body. The body is mapped, not copied, unless its buffers are compressed: then each
begins with the number of bytes to which it expands, and pyarrow allocates that many.
"""

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from holobind.data.files import expansion_error
from holobind.errors import DataError

MAGIC, CONTINUATION = b"ARROW1", 0xFFFFFFFF
DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # types of messages
BLOCK_BYTES, BUFFER_BYTES, PREFIX_BYTES = 24, 16, 8
NOT_COMPRESSED = -1  # the prefix of a buffer that compression would not make shorter

Read = Callable[[int, int], bytes]  # offset, number of bytes


def check_messages(path: Path, limit: int) -> int:
    """The bytes to which all messages of a file expand; refused if these are more than `limit`, or leave the file."""
    size, total = path.stat().st_size, 0
    with path.open("rb", buffering=0) as file:

        def read(offset: int, n_bytes: int) -> bytes:
            if not 0 <= offset <= offset + n_bytes <= size:
                raise ValueError("it leaves the file")
            return os.pread(file.fileno(), n_bytes, offset)

        try:
            is_file = read(0, min(size, len(MAGIC))) == MAGIC
            for at, n_bytes in _blocks(read, size) if is_file else _stream(read, size):
                total += n_bytes + _message_bytes(read, at, n_bytes, limit - total)
                if total > limit:
                    raise expansion_error(path, limit)
        except (ValueError, struct.error, IndexError) as error:
            raise DataError(f"{path}: a damaged Arrow file ({error})") from error
    return total


def _stream(read: Read, size: int) -> Iterator[tuple[int, int]]:
    """Where the flatbuffer of each message of a stream begins, and its bytes."""
    at = 0
    while at + 4 <= size:
        n_bytes, at = struct.unpack("<I", read(at, 4))[0], at + 4
        if n_bytes == CONTINUATION:
            n_bytes, at = struct.unpack("<I", read(at, 4))[0], at + 4
        if n_bytes == 0:
            return
        yield at, n_bytes
        message = read(at, n_bytes)
        at += n_bytes + _body_bytes(message, _root(message))


def _blocks(read: Read, size: int) -> Iterator[tuple[int, int]]:
    """The same of the messages to which the footer of a file points."""
    n_footer = struct.unpack("<i", read(size - len(MAGIC) - 4, 4))[0]
    footer = read(size - len(MAGIC) - 4 - n_footer, n_footer)
    for field in (2, 3):  # dictionaries, record batches
        first, n = _vector(footer, _root(footer), field, BLOCK_BYTES)
        for i in range(n):
            at, n_bytes = struct.unpack_from("<qi", footer, first + BLOCK_BYTES * i)
            prefix = 8 if read(at, 4) == b"\xff" * 4 else 4
            yield at + prefix, n_bytes - prefix


def _message_bytes(read: Read, at: int, n_bytes: int, limit: int) -> int:
    """The bytes of the body of a message, expanded."""
    message = read(at, n_bytes)
    root = _root(message)
    n_body, body = _body_bytes(message, root), at + n_bytes
    read(body + n_body, 0)
    kind = _field(message, root, 1)
    batch = _child(message, root, 2)
    if kind and message[kind] == DICTIONARY_BATCH and batch:
        batch = _child(message, batch, 1)
    elif not kind or message[kind] != RECORD_BATCH:
        return n_body
    if not batch or not _field(message, batch, 3):
        return n_body
    first, n = _vector(message, batch, 2, BUFFER_BYTES)
    total = n_body
    for offset, length in struct.iter_unpack("<qq", message[first : first + BUFFER_BYTES * n]):
        if length == 0:
            continue
        if length < PREFIX_BYTES or offset < 0 or offset + length > n_body:
            raise ValueError("a buffer leaves its message")
        expanded = struct.unpack("<q", read(body + offset, PREFIX_BYTES))[0]
        if expanded < NOT_COMPRESSED:
            raise ValueError("a buffer of negative length")
        total += max(expanded, 0)
        if total > limit:
            break
    return total


# Flatbuffers: a table begins with the distance to a list of the places of its fields


def _root(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it is not there."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if fields < 0:
        raise ValueError("a table leaves its message")
    n_bytes, place = struct.unpack_from("<H", data, fields)[0], 4 + 2 * number
    distance = struct.unpack_from("<H", data, fields + place)[0] if place + 2 <= n_bytes else 0
    return table + distance if distance else 0


def _child(data: bytes, table: int, number: int) -> int:
    """Where a table or a vector in a field begins; 0 if it is not there."""
    at = _field(data, table, number)
    return at + int(struct.unpack_from("<I", data, at)[0]) if at else 0


def _vector(data: bytes, table: int, number: int, element_bytes: int) -> tuple[int, int]:
    """Where the elements of a vector begin, and their number."""
    at = _child(data, table, number)
    n = struct.unpack_from("<I", data, at)[0] if at else 0
    if at + 4 + n * element_bytes > len(data) and n:
        raise ValueError("a vector leaves its message")
    return at + 4, n


def _body_bytes(message: bytes, root: int) -> int:
    at = _field(message, root, 3)
    n_bytes = int(struct.unpack_from("<q", message, at)[0]) if at else 0
    if n_bytes < 0:
        raise ValueError("a body of negative length")
    return n_bytes
