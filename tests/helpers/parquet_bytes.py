"""Parquet files byte by byte, for claims that no writer makes (Thrift, compact protocol)."""

import struct

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
BYTE_ARRAY, UTF8, ZSTD = 6, 0, 6
REQUIRED, REPEATED = 0, 2
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
LABELS = "labels"


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def number(n):
    return varint(n << 1 if n >= 0 else (-n << 1) - 1)


def text(value):
    return varint(len(value)) + value.encode()


def record(*fields):
    """A struct of (number, type, bytes), in ascending order."""
    out, last = b"", 0
    for field, kind, value in fields:
        out += bytes([(field - last) << 4 | kind]) + value
        last = field
    return out + b"\0"


def sequence(kind, items, claimed=None):
    return bytes([0xF0 | kind]) + varint(len(items) if claimed is None else claimed) + b"".join(items)


def page(kind, body, n_values, encoding=PLAIN, *, uncompressed=None, compressed=None, levels=(0, 0)):
    """A page whose header may lie about its sizes."""
    sizes = [len(body) if size is None else size for size in (uncompressed, compressed)]
    count = (1, I32, number(n_values))
    inner = {
        DATA: (5, record(count, *((field, I32, number(e)) for field, e in ((2, encoding), (3, RLE), (4, RLE))))),
        DICTIONARY: (7, record(count, (2, I32, number(encoding)))),
        DATA_V2: (
            8,
            record(
                count,
                *((f, I32, number(v)) for f, v in ((2, 0), (3, 1), (4, encoding), (5, levels[1]), (6, levels[0]))),
            ),
        ),
    }[kind]
    return (
        record(
            (1, I32, number(kind)), (2, I32, number(sizes[0])), (3, I32, number(sizes[1])), (inner[0], STRUCT, inner[1])
        )
        + body
    )


def plain(*texts):
    return b"".join(struct.pack("<I", len(t)) + t for t in texts)


def file(
    pages, n_values, *, codec=0, lists=False, dictionary=False, n_rows=1, n_groups=1, n_bytes=None, end=b"", sizes=b""
):
    """A file of one column `labels` of required texts, or of lists of them, whose row groups all have the same pages.

    n_bytes   what the footer claims the chunk to have
    end       replaces the list of row groups in the footer
    sizes     the statistics of sizes of the column, a struct
    """
    leaf = ((1, I32, number(BYTE_ARRAY)), (3, I32, number(REPEATED if lists else REQUIRED)))
    schema = [
        record((4, BINARY, text("schema")), (5, I32, number(1))),
        record(*leaf, (4, BINARY, text(LABELS)), (6, I32, number(UTF8))),
    ]
    start = 4
    described = record(
        (1, I32, number(BYTE_ARRAY)),
        (2, LIST, sequence(I32, [number(PLAIN)])),
        (3, LIST, sequence(BINARY, [text(LABELS)])),
        (4, I32, number(codec)),
        (5, I64, number(n_values)),
        (6, I64, number(len(pages))),
        (7, I64, number(len(pages) if n_bytes is None else n_bytes)),
        (9, I64, number(start + (1 if dictionary else 0))),
        *([(11, I64, number(start))] if dictionary else []),
        *([(16, STRUCT, sizes)] if sizes else []),
    )
    chunk = record((2, I64, number(start)), (3, STRUCT, described))
    group = record((1, LIST, sequence(STRUCT, [chunk])), (2, I64, number(len(pages))), (3, I64, number(n_rows)))
    footer = record(
        (1, I32, number(1)),
        (2, LIST, sequence(STRUCT, schema)),
        (3, I64, number(n_rows * n_groups)),
        (4, LIST, end or sequence(STRUCT, [group] * n_groups)),
    )
    return b"PAR1" + pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


def repeated_run(value, n):
    """A run of `n` equal values of at most eight bits, in the encoding RLE."""
    return varint(n << 1) + bytes([value])


def with_length(data):
    return struct.pack("<I", len(data)) + data


def deltas(first, n, *, claimed=None):
    """`first`, then `n - 1` times the same number, in blocks of deltas of no bits."""
    blocks = (n - 1 + 127) // 128
    count = n if claimed is None else claimed
    return varint(128) + varint(4) + varint(count) + number(first) + blocks * (number(0) + bytes(4))
