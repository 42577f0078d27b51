"""Check the pages of a Parquet file before pyarrow reads them: what their headers claim is what pyarrow allocates.

A column chunk is a sequence of pages. The header of a page (Thrift, compact protocol) says how many bytes follow, to
how many they expand and how many values they hold. These claims are compared with the size of the file and with the
limit of expansion. Where an encoding hides further claims in the page itself (delta encodings), the page is
decompressed here. The footer is parsed here, too: pyarrow ends the process where it is asked for the description of a
column that is damaged in some ways.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holobind.data.files import expansion_error
from holobind.errors import DataError

VALUE_BYTES = 8  # the least memory of a value: its levels and itself
HEADER_READ_BYTES, MAX_HEADER_BYTES = 1 << 10, 1 << 24  # of the header of a page
CHUNK_SLACK_BYTES = 100  # that old writers do not count: the header of the dictionary
WRITER_OF_WRONG_FLAGS = "parquet-cpp version"  # pyarrow takes its compressed pages for such, whatever they say
FOOTER_END_BYTES = 8  # the length of the footer, and PAR1
MIN_CONTAINER_LIMIT = 1000
MIN_ELEMENT_BYTES = 8  # of a column of a schema in a footer
MAX_DEPTH = 10  # of the structs and lists of a header or a footer
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PAGE_HEADERS = {DATA: 5, 1: 6, DICTIONARY: 7, DATA_V2: 8}  # type of a page -> field with the header of that type
PLAIN, RLE, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES = 0, 3, 5, 6, 7
DICTIONARY_ENCODINGS = (2, 8)
KNOWN_ENCODINGS = (PLAIN, 2, RLE, 4, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, 8, 9)
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12  # of the protocol
# Lists of a footer, by the numbers of the fields that lead to them: readers do not compare the type of their elements.
LIST_TYPES = {
    **dict.fromkeys([(2,), (4,), (5,), (7,), (4, 1), (4, 4), (4, 1, 3, 8), (4, 1, 3, 13)], STRUCT),
    **dict.fromkeys([(4, 1, 3, 2), (4, 1, 3, 16, 2), (4, 1, 3, 16, 3), (4, 1, 3, 17, 2)], I64),
    **dict.fromkeys([(4, 1, 3, 3), (4, 1, 8, 2, 1)], BINARY),
}
CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}  # that decompress delta encodings
MAX_VARINT_BYTES = 10

Read = Callable[[int, int], bytes]  # offset, number of bytes


def thrift_limits(path: Path) -> dict[str, int]:
    """Limits of the lists and strings of the footer: pyarrow makes a list as long as the footer claims it to be."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER_END_BYTES))
        footer_bytes = min(size, int.from_bytes(file.read(4), "little"))
    return {
        "thrift_container_size_limit": max(MIN_CONTAINER_LIMIT, footer_bytes // MIN_ELEMENT_BYTES),
        "thrift_string_size_limit": max(MIN_CONTAINER_LIMIT, min(size, 2**31 - 1)),
    }


@dataclass(frozen=True)
class Chunk:
    """A column of a row group."""

    start: int
    n_bytes: int
    n_values: int
    codec: int


@dataclass(frozen=True)
class Footer:
    """What the footer says of the row groups."""

    n_rows: int
    n_uncompressed: int
    groups: list[list[Chunk]]


def read_footer(path: Path) -> Footer:
    """The footer of a file, which is damaged if it is not as the format has it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER_END_BYTES))
        n_bytes = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - FOOTER_END_BYTES - n_bytes))
        data = file.read(min(size, n_bytes))
    try:
        groups = _fields(data, 0, MAX_DEPTH)[0][4][1]
        return Footer(
            sum(_int64(group, 3) for group in groups),
            sum(_int64(group, 2) for group in groups),
            [[_chunk(chunk[3][1]) for chunk in group[1][1]] for group in groups],
        )
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path}: a damaged Parquet file: no valid footer") from error


def _chunk(described: dict[int, tuple[int, Any]]) -> Chunk:
    start = _int64(described, 9)
    if 11 in described and 0 < (dictionary := _int64(described, 11)) < start:
        start = dictionary
    return Chunk(start, _int64(described, 7), _int64(described, 5), _int32(described, 4))


@dataclass(frozen=True)
class Page:
    """What the header of a page says; `body` is where its bytes begin."""

    kind: int
    body: int
    n_bytes: int
    n_uncompressed: int
    n_values: int
    encoding: int
    level_bytes: int  # before the values, not compressed; a page of version 1 has its levels among the compressed bytes
    compressed: bool
    levels: tuple[int, ...] = ()  # encodings of the levels in a page of version 1


def check_pages(path: Path, footer: Footer, columns: dict[int, Any], created_by: str, limit: int) -> list[int]:
    """Refuse columns whose pages claim more than the file can hold, or more than `limit`.

    columns      number of a leaf -> its schema in pyarrow
    created_by   the program that wrote the file

    Returns those that can be read as dictionaries: pyarrow cannot if one of their pages has a delta encoding.
    """
    size = path.stat().st_size
    n_left, n_uncompressed, n_values, delta = size, 0, 0, set()
    with path.open("rb", buffering=0) as file:

        def read(offset: int, n_bytes: int) -> bytes:
            return os.pread(file.fileno(), n_bytes, offset)

        for group in footer.groups:
            for column, described in columns.items():
                chunk = group[column]
                n_left -= chunk.n_bytes
                if chunk.start + chunk.n_bytes > size or n_left < 0:
                    raise DataError(f"{path}: a damaged Parquet file: column {column + 1} leaves the file")
                pages = []
                end = min(size, chunk.start + chunk.n_bytes + CHUNK_SLACK_BYTES)
                for page in _pages(path, read, chunk.start, end, chunk.n_values):
                    if page.kind == DICTIONARY:
                        width = 1 if described.physical_type == "FIXED_LEN_BYTE_ARRAY" else 4
                        if width * page.n_values > page.n_uncompressed:
                            raise _damaged(path, page.body, "a dictionary of more values than bytes")
                    n_uncompressed += page.n_uncompressed
                    n_values += page.n_values
                    if max(n_uncompressed, VALUE_BYTES * n_values) > limit:
                        raise expansion_error(path, limit)
                    pages.append(page)
                if any(page.encoding in (DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES) for page in pages):
                    delta.add(column)
                    flags = not created_by.startswith(WRITER_OF_WRONG_FLAGS) or all(page.compressed for page in pages)
                    if chunk.codec not in CODECS or not flags:
                        raise DataError(f"{path}: delta encodings with a compression that is not known")
                    if _dense_bytes(path, read, pages, CODECS[chunk.codec], described) > limit:
                        raise expansion_error(path, limit)
    return [column for column in columns if column not in delta]


def _pages(path: Path, read: Read, at: int, end: int, n_values: int) -> Iterator[Page]:
    """The pages from byte `at` on that hold a number of values: those that pyarrow reads."""
    while n_values > 0:
        page = _header(path, read, at, end)
        if page.body + page.n_bytes > end:
            raise _damaged(path, at, "it leaves its column")
        if page.kind != DICTIONARY:
            n_values -= page.n_values
        yield page
        at = page.body + page.n_bytes


def _header(path: Path, read: Read, at: int, end: int) -> Page:
    """The page whose header is at a byte; the header has a few dozen bytes, unless its statistics are long texts."""
    n_bytes, available = HEADER_READ_BYTES, min(end - at, MAX_HEADER_BYTES)
    while True:
        data = read(at, min(n_bytes, available))
        try:
            fields, length = _fields(data, 0, MAX_DEPTH)
            return _page(fields, at + length)
        except (IndexError, KeyError, ValueError) as error:
            if not isinstance(error, IndexError) or n_bytes >= available:
                raise _damaged(path, at, "no valid header") from error
            n_bytes *= 16


def _page(fields: dict[int, tuple[int, Any]], body: int) -> Page:
    kind, n_uncompressed, n_bytes = (_int32(fields, field) for field in (1, 2, 3))
    described = fields[PAGE_HEADERS[kind]][1]
    if kind not in (DATA, DICTIONARY, DATA_V2):
        return Page(kind, body, n_bytes, n_uncompressed, 0, PLAIN, 0, compressed=True)
    n_values, encoding = _int32(described, 1), _int32(described, 4 if kind == DATA_V2 else 2)
    if encoding not in KNOWN_ENCODINGS:
        raise ValueError(f"encoding {encoding}")
    if kind != DATA_V2:
        levels = (_int32(described, 3), _int32(described, 4)) if kind == DATA else ()
        return Page(kind, body, n_bytes, n_uncompressed, n_values, encoding, 0, compressed=True, levels=levels)
    level_bytes = _int32(described, 5) + _int32(described, 6)
    if level_bytes > min(n_bytes, n_uncompressed):
        raise ValueError("levels longer than their page")
    compressed = described.get(7, (TRUE, None))[0] == TRUE
    return Page(kind, body, n_bytes, n_uncompressed, n_values, encoding, level_bytes, compressed)


def _int32(fields: dict[int, tuple[int, Any]], field: int) -> int:
    kind, value = fields[field]
    if kind != I32 or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"field {field}")
    return value


def _int64(fields: dict[int, tuple[int, Any]], field: int) -> int:
    kind, value = fields[field]
    if kind != I64 or not 0 <= value < 2**63:
        raise ValueError(f"field {field}")
    return int(value)


def _fields(data: bytes, at: int, depth: int, path: tuple[int, ...] = ()) -> tuple[dict[int, tuple[int, Any]], int]:
    """A struct of the compact protocol: field -> its type and value, and where it ends.

    Fields must ascend, so that no reader can take another value of a repeated field. An IndexError means that more
    bytes are needed.
    """
    fields: dict[int, tuple[int, Any]] = {}
    number = 0
    while byte := data[at]:
        before, kind, at = number, byte & 15, at + 1
        value = None
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _varint(data, at, signed=True)
        if not before < number < 2**15:
            raise ValueError("fields that do not ascend")
        if kind not in (TRUE, FALSE):
            value, at = _value(data, at, kind, depth, (*path, number))
        fields[number] = kind, value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int, path: tuple[int, ...]) -> tuple[Any, int]:
    """A value of a struct or a list, None for those that are not used, and where it ends."""
    if kind in (I16, I32, I64):
        return _varint(data, at, signed=True)
    if kind in (BYTE, TRUE, FALSE):
        return None, at + 1
    if kind == DOUBLE:
        return None, at + 8
    if kind == BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind == STRUCT and depth:
        return _fields(data, at, depth - 1, path)
    if kind != LIST or not depth:
        raise ValueError(f"type {kind}")
    kind, n, at = data[at] & 15, data[at] >> 4, at + 1
    if n == 15:
        n, at = _varint(data, at)
    if (I64 if kind == I32 else kind) != LIST_TYPES.get(path, kind) and n:
        raise ValueError(f"a list of type {kind}")
    values = []
    for _ in range(n):
        value, at = _value(data, at, kind, depth - 1, path)
        values.append(value)
        if at > len(data):
            raise IndexError
    return values, at


def _varint(data: bytes, at: int, *, signed: bool = False) -> tuple[int, int]:
    value = 0
    for i in range(MAX_VARINT_BYTES):
        byte = data[at + i]
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return (value >> 1) ^ -(value & 1) if signed else value, at + i + 1
    raise ValueError("a number of too many bytes")


# Delta encodings


def _dense_bytes(path: Path, read: Read, pages: list[Page], codec: str, described: Any) -> int:
    """The most bytes to which the values of a chunk expand that cannot be read as a dictionary."""
    n_bytes = longest = 0
    for page in pages:
        try:
            if page.kind == DICTIONARY:
                if described.physical_type == "BYTE_ARRAY":
                    longest = _longest(_content(read, page, codec), page.n_values)
            elif page.encoding in DICTIONARY_ENCODINGS:
                n_bytes += longest * page.n_values
            elif page.encoding in (DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES):
                values = _values(_content(read, page, codec), page, described)
                n_bytes += len(values) + _prefix_bytes(values, page)
        except (IndexError, ValueError, struct.error, OSError) as error:
            raise _damaged(path, page.body, "no valid values") from error
    return n_bytes


def _content(read: Read, page: Page, codec: str) -> bytes:
    """The decompressed bytes of a page, without the levels of version 2."""
    import pyarrow as pa

    data = read(page.body, page.n_bytes)[page.level_bytes :]
    n_bytes = page.n_uncompressed - page.level_bytes
    if not codec or not page.compressed or not n_bytes:
        return data
    content: bytes = pa.Codec(codec).decompress(data, n_bytes, asbytes=True)
    return content


def _values(data: bytes, page: Page, described: Any) -> bytes:
    """The values of a page, without the levels of version 1."""
    if page.kind == DATA:
        for levels in (described.max_repetition_level, described.max_definition_level):
            if levels:
                if any(encoding != RLE for encoding in page.levels):
                    raise ValueError("levels without a length")
                data = data[4 + struct.unpack_from("<I", data)[0] :]
    return data


def _longest(data: bytes, n_values: int) -> int:
    """The bytes of the longest entry of a dictionary."""
    at = longest = 0
    for _ in range(n_values):
        length = struct.unpack_from("<I", data, at)[0]
        at, longest = at + 4 + length, max(longest, length)
    return longest


def _prefix_bytes(data: bytes, page: Page) -> int:
    """The bytes that values of a delta encoding repeat of the values before them; its counts are checked."""
    lengths, at = _deltas(data, page.n_values, decode=page.encoding == DELTA_BYTES)
    if page.encoding != DELTA_BYTES:
        return 0
    if (lengths < 0).any():
        raise ValueError("a prefix of negative length")
    _deltas(data[at:], page.n_values, decode=False)
    return int(lengths.sum())


def _deltas(data: bytes, max_values: int, *, decode: bool) -> tuple[Any, int]:
    """The integers of a block of deltas (none unless `decode`) and where it ends."""
    block_values, at = _varint(data, 0)
    n_blocks, at = _varint(data, at)
    n_values, at = _varint(data, at)
    first, at = _varint(data, at, signed=True)
    if not 0 < n_blocks <= min(block_values, max(len(data), 64)) or block_values >= 2**31 or n_values > max_values:
        raise ValueError("more deltas than values")
    values = [np.array([first] if n_values else [], np.int64)]
    n_left, n_each = n_values - 1, block_values // n_blocks
    while decode and n_left > 0:
        least, at = _varint(data, at, signed=True)
        widths, at = data[at : at + n_blocks], at + n_blocks
        for width in widths:
            if n_left <= 0:
                break
            n_bytes, n = n_each * width // 8, min(n_each, n_left)
            if width > 32 or at + n_bytes > len(data):
                raise ValueError("deltas that leave their page")
            bits = np.unpackbits(np.frombuffer(data, np.uint8, n_bytes, at), count=n * width, bitorder="little")
            deltas = bits.reshape(n, width) @ (np.int64(1) << np.arange(width, dtype=np.int64))
            values.append(deltas + (least & 0xFFFFFFFF))
            at, n_left = at + n_bytes, n_left - n
        if len(widths) < n_blocks:
            raise ValueError("deltas that leave their page")
    return (np.cumsum(np.concatenate(values)) & 0xFFFFFFFF).astype(np.uint32).view(np.int32), at


def _damaged(path: Path, at: int, reason: str) -> DataError:
    return DataError(f"{path}: a damaged Parquet page at byte {at:,}: {reason}")
