"""Hostile Parquet and Arrow files: what they claim is checked before it is allocated, in a process of little memory."""

import re
import struct

import pytest
from helpers import parquet_bytes as parquet
from helpers.child import run_child

from holobind.data.tables import arrow_messages, columnar
from holobind.errors import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SPARE_BYTES = 256 << 20  # of address space that a file of some kilobytes may take: the limit of expansion is 64 MB
HUGE = 2**31 - 1
EXPANDS, LEAVES = r"it expands to more than 67,108,864 bytes", "it leaves its column"


# Parquet


def page_of_two_gigabytes():
    """The header says that 2 GB of compressed bytes follow."""
    return parquet.file(parquet.page(parquet.DATA, parquet.plain(b"a"), 1, compressed=HUGE), 1)


def page_that_expands_to_two_gigabytes():
    body = pa.compress(parquet.plain(b"a"), "zstd", asbytes=True)
    return parquet.file(parquet.page(parquet.DATA, body, 1, uncompressed=HUGE), 1, codec=parquet.ZSTD)


def pages_that_expand_together():
    """Each page is within the limit; all of them are not. Zeros are 2^24 texts of no bytes."""
    body = pa.compress(bytes(1 << 26), "zstd", asbytes=True)
    one = parquet.page(parquet.DATA, body, 1, uncompressed=1 << 26)
    return parquet.file(one * 4, 4, codec=parquet.ZSTD, n_rows=4)


def page_that_leaves_its_column():
    """The footer says that the column is longer than the file."""
    return parquet.file(parquet.page(parquet.DATA, parquet.plain(b"a"), 1), 1, n_bytes=HUGE)


def dictionary_of_two_billion_entries():
    pages = parquet.page(parquet.DICTIONARY, parquet.plain(b"a"), HUGE)
    pages += parquet.page(parquet.DATA, b"\1" + parquet.repeated_run(0, 1), 1, parquet.RLE_DICTIONARY)
    return parquet.file(pages, 1, dictionary=True)


def list_of_two_billion_items():
    """One row: runs of levels say in ten bytes that it has 2^31 - 1 items."""
    pages = parquet.page(parquet.DICTIONARY, parquet.plain(b"a"), 1)
    levels = parquet.with_length(parquet.repeated_run(0, 1) + parquet.repeated_run(1, HUGE - 1))
    levels += parquet.with_length(parquet.repeated_run(1, HUGE))
    body = levels + b"\1" + parquet.repeated_run(0, HUGE)
    pages += parquet.page(parquet.DATA, body, HUGE, parquet.RLE_DICTIONARY)
    return parquet.file(pages, HUGE, lists=True, dictionary=True)


def levels_longer_than_their_page():
    return parquet.file(parquet.page(parquet.DATA_V2, parquet.plain(b"a"), 1, levels=(0, HUGE)), 1)


def prefix_that_all_texts_repeat():
    """A text of 1 MB, and 4,000 that are the same: 130 bytes in the encoding DELTA_BYTE_ARRAY."""
    first = b"a" * (1 << 20)
    prefixes = parquet.varint(128) + parquet.varint(4) + parquet.varint(4000) + parquet.number(0)
    # The first delta is 2^20, in 32 bits; all others are 0.
    prefixes += parquet.number(0) + bytes([32, 0, 0, 0]) + struct.pack("<32I", 1 << 20, *[0] * 31)
    prefixes += 31 * (parquet.number(0) + bytes(4))
    lengths = parquet.varint(128) + parquet.varint(4) + parquet.varint(4000) + parquet.number(1 << 20)
    lengths += parquet.number(-(1 << 20)) + bytes([32, 32, 32, 32])
    lengths += struct.pack("<128I", 0, *[1 << 20] * 127)
    lengths += 31 * (parquet.number(0) + bytes(4))
    body = prefixes + lengths + first
    packed = pa.compress(body, "zstd", asbytes=True)
    one = parquet.page(parquet.DATA, packed, 4000, 7, uncompressed=len(body))
    return parquet.file(one, 4000, codec=parquet.ZSTD, n_rows=4000)


def two_billion_lengths():
    """A page of one text says that it has 2^31 - 1 lengths."""
    body = parquet.deltas(1, 1, claimed=HUGE) + b"a"
    return parquet.file(parquet.page(parquet.DATA, body, 1, 6), 1)


def two_billion_suffixes():
    body = parquet.deltas(0, 1) + parquet.deltas(1, 1, claimed=HUGE) + b"a"
    return parquet.file(parquet.page(parquet.DATA, body, 1, 7), 1)


def deltas_of_many_widths():
    """A block of 2^31 - 32 deltas: the widths of its parts would take 64 MB."""
    body = parquet.varint((1 << 31) - 32) + parquet.varint((1 << 26) - 1) + parquet.varint(1) + parquet.number(1) + b"a"
    return parquet.file(parquet.page(parquet.DATA, body, 1, 6), 1)


def row_groups_of_the_same_pages():
    """2,000 row groups are the same 50 kB, each of which expands to 1 MB."""
    body = parquet.plain(b"a" * (1 << 20))
    packed = pa.compress(body, "zstd", asbytes=True)
    one = parquet.page(parquet.DATA, packed, 1, uncompressed=len(body))
    return parquet.file(one, 1, codec=parquet.ZSTD, n_groups=2000)


def footer_of_a_million_row_groups():
    """Two lists that say they have 999,999 elements, and have none."""
    inner = parquet.sequence(parquet.STRUCT, [], 999_999)
    return parquet.file(b"", 0, end=parquet.sequence(parquet.STRUCT, [b"\x19" + inner], 999_999))


def compression_that_there_is_not():
    """pyarrow ends the process where it is asked for the name of this compression."""
    body = parquet.deltas(1, 1) + b"a"
    return parquet.file(parquet.page(parquet.DATA, body, 1, 6), 1, codec=32)


def histogram_of_levels_that_there_are_not():
    """pyarrow ends the process where it is asked for the description of this column."""
    levels = parquet.sequence(parquet.I64, [parquet.number(1)] * 5)
    sizes = parquet.record((3, parquet.LIST, levels))
    return parquet.file(parquet.page(parquet.DATA, parquet.plain(b"a"), 1), 1, sizes=sizes)


def list_whose_elements_have_another_type():
    """Readers take the elements for structs whatever type the list states, so that the bytes mean two things."""
    good = parquet.file(parquet.page(parquet.DATA, parquet.plain(b"a"), 1), 1)
    return good.replace(b"\x19" + bytes([0xF0 | parquet.STRUCT, 2]), b"\x19" + bytes([0xF0 | parquet.BINARY, 2]), 1)


def header_whose_size_is_repeated():
    """A second field of the compressed size: readers may take the one or the other."""
    good = parquet.page(parquet.DATA, parquet.plain(b"a"), 1)
    at = good.index(b"\x15", 4) + 1  # the value of field 3
    again = good[: at + 1] + b"\x05" + parquet.number(3) + parquet.number(HUGE) + good[at + 1 :]
    return parquet.file(again, 1)


PARQUET = {
    page_of_two_gigabytes: LEAVES,
    page_that_expands_to_two_gigabytes: EXPANDS,
    pages_that_expand_together: r"it expands to more than [\d,]+ bytes",
    page_that_leaves_its_column: "column 1 leaves the file",
    dictionary_of_two_billion_entries: "a dictionary of more values than bytes",
    list_of_two_billion_items: EXPANDS,
    levels_longer_than_their_page: "no valid header",
    prefix_that_all_texts_repeat: EXPANDS,
    two_billion_lengths: "no valid values",
    two_billion_suffixes: "no valid values",
    deltas_of_many_widths: "no valid values",
    row_groups_of_the_same_pages: "leaves the file|expands to more than",
    footer_of_a_million_row_groups: "Exceeded size limit",
    compression_that_there_is_not: "a compression that is not known",
    histogram_of_levels_that_there_are_not: "histogram size mismatch",
    list_whose_elements_have_another_type: "no valid footer",
    header_whose_size_is_repeated: "no valid header",
}


# Arrow


def arrow(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def buffer_that_expands_to_a_terabyte():
    """The number of bytes before the compressed bytes of a buffer is a lie."""
    content = arrow(pa.table({"labels": ["a" * 1000]}), compression="zstd")
    before, _, after = content.rpartition(struct.pack("<q", 1000))
    return before + struct.pack("<q", 1 << 40) + after


def message_of_a_terabyte():
    content = bytearray(arrow(pa.table({"labels": ["a"]})))
    schema_bytes = struct.unpack_from("<I", content, 4)[0]
    at = 8 + schema_bytes + 8  # of the flatbuffer of the record batch
    message = bytes(content[at:])
    place = at + arrow_messages._field(message, arrow_messages._root(message), 3)
    struct.pack_into("<q", content, place, 1 << 40)
    return bytes(content)


def views_of_the_same_text():
    """A thousand views of one text of 1 MB."""
    long = pa.array(["a" * (1 << 20)], pa.string_view())
    _, view, data = long.buffers()
    views = pa.py_buffer(view.to_pybytes()[:16] * 1000)
    return arrow(pa.table({"labels": pa.Array.from_buffers(pa.string_view(), 1000, [None, views, data])}))


ARROW = {
    buffer_that_expands_to_a_terabyte: r"it expands to more than [\d,]+ bytes",
    message_of_a_terabyte: "a damaged Arrow file",
    views_of_the_same_text: r"it expands to more than [\d,]+ bytes",
}
ATTACKS = {**PARQUET, **ARROW}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a process with `SPARE_BYTES` of memory says to each file."""
    folder = tmp_path_factory.mktemp("columnar")
    for attack in ATTACKS:
        (folder / attack.__name__).write_bytes(attack())
        assert (folder / attack.__name__).stat().st_size < 2_000_000
    code = f"""
        import re, resource, sys
        from pathlib import Path
        import pyarrow as pa, pyarrow.parquet, pyarrow.ipc
        from holobind.data.tables import columnar
        from holobind.errors import DataError
        now = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (now + {SPARE_BYTES}, now + {SPARE_BYTES}))
        for name in sys.stdin.read().split():
            path = Path(name)
            is_parquet = path.read_bytes()[:4] == b"PAR1"
            try:
                source = columnar.from_parquet(path, None) if is_parquet else columnar.from_arrow([path], path, None)
                print(name, sum(1 for _ in source.records(["labels"])), "rows", flush=True)
            except DataError as error:
                print(name, "no memory:" * isinstance(error.__cause__, MemoryError), error, flush=True)
        """
    names = "\n".join(attack.__name__ for attack in ATTACKS)
    (folder / "names").write_text(names)
    code = code.replace("sys.stdin.read()", "Path('names').read_text()")
    child = run_child(code, cwd=folder, ARROW_DEFAULT_MEMORY_POOL="system")
    assert child.returncode == 0, child.stderr
    return dict(line.split(" ", 1) for line in child.stdout.splitlines())


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_hostile_file_is_refused_in_little_memory(answers, attack):
    answer = answers[attack.__name__]
    assert re.search(ATTACKS[attack], answer) and "no memory" not in answer, answer


def test_the_helper_s_files_are_valid_without_their_lies(tmp_path):
    """Else they would be refused for another reason."""
    path = tmp_path / "a.parquet"

    def read(content):
        path.write_bytes(content)
        return [row["labels"] for _, row in columnar.from_parquet(path, None).records(["labels"])]

    assert read(parquet.file(parquet.page(parquet.DATA, parquet.plain(b"a"), 1), 1)) == ["a"]
    assert read(parquet.file(parquet.page(parquet.DATA_V2, parquet.plain(b"a"), 1), 1)) == ["a"]
    pages = parquet.page(parquet.DICTIONARY, parquet.plain(b"a"), 1)
    body = parquet.with_length(parquet.repeated_run(0, 1) + parquet.repeated_run(1, 2))
    body += parquet.with_length(parquet.repeated_run(1, 3)) + b"\1" + parquet.repeated_run(0, 3)
    pages += parquet.page(parquet.DATA, body, 3, parquet.RLE_DICTIONARY)
    assert read(parquet.file(pages, 3, lists=True, dictionary=True)) == [["a"] * 3]
    body = parquet.deltas(1, 1) + b"a"
    assert read(parquet.file(parquet.page(parquet.DATA, body, 1, 6), 1)) == ["a"]
    assert read(parquet.file(parquet.page(parquet.DATA, parquet.deltas(0, 1) + body, 1, 7), 1)) == ["a"]


def test_an_option_raises_the_limit_of_a_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(prefix_that_all_texts_repeat())
    with pytest.raises(DataError, match="--max-uncompressed"):
        next(columnar.from_parquet(path, None).records(["labels"]))
    _, row = next(columnar.from_parquet(path, 5 << 30).records(["labels"]))
    assert row["labels"] == "a" * (1 << 20)


def test_items_of_lists_that_are_one_text_take_the_memory_of_one(tmp_path):
    """5,000 labels of one row are the same text of 1 MB: an entry of a dictionary."""
    pages = parquet.page(parquet.DICTIONARY, parquet.plain(b"a" * (1 << 20)), 1)
    body = parquet.with_length(parquet.repeated_run(0, 1) + parquet.repeated_run(1, 4999))
    body += parquet.with_length(parquet.repeated_run(1, 5000)) + b"\1" + parquet.repeated_run(0, 5000)
    pages += parquet.page(parquet.DATA, body, 5000, parquet.RLE_DICTIONARY)
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet.file(pages, 5000, lists=True, dictionary=True))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    try:
        ((_, row),) = columnar.from_parquet(path, None).records(["labels"])
    finally:
        pa.set_memory_pool(before)
    assert len(row["labels"]) == 5000 and len({id(label) for label in row["labels"]}) == 1
    assert pool.max_memory() < 64 << 20
