"""The fast reader agrees with the slow one on every input: the same matrices, or an error in the same line."""

import bz2
import gzip
import lzma
import random
import re

import numpy as np
import pytest
from helpers.twins import InvalidFile, csr, identical, nearest, read_by_definition
from hypothesis import example, given
from hypothesis import strategies as st

from holobind.data import _block_reader, sparse_text
from holobind.data._block_reader import nearest_float32
from holobind.data.dataset import Split
from holobind.errors import DataError, LabelError


def read(tmp_path, content, name="points.txt", **options):
    path = tmp_path / name
    path.write_bytes(content)
    return sparse_text.read(path, cache=False, **options)[0]


def agrees(tmp_path, content, **options):
    """Check that both readers give the same matrices or an error in the same line; return whether they accept it."""
    try:
        X, Y = read_by_definition(content, **options)
    except InvalidFile as invalid:
        with pytest.raises(DataError) as caught:
            read(tmp_path, content, **options)
        message = str(caught.value)
        assert "\n" not in message and message.startswith(str(tmp_path / "points.txt") + ":")
        line = invalid.args[0]
        assert line is None or message.startswith(f"{tmp_path / 'points.txt'}:{line}:"), message
        return False
    split = read(tmp_path, content, **options)
    assert identical(split.X, X) and identical(split.Y, Y)
    return True


@pytest.mark.parametrize(
    "content",
    [
        b"2 5 4\n0,2 1:0.5 4:1\n1 0:2\n",
        b"0,2 1:0.5 4:1\n1 0:2\n",  # no header
        b"2 5 4\n0,2 1:0.5 4:1\n1 0:2",  # no final newline
        b"2 5 4\r\n0,2 1:0.5 4:1 \r\n1 0:2\r\n",  # CRLF
        b"2 5 4  \n0,2   1:0.5\t4:1   \n1 0:2 \n",  # spaces
        b"2 5 4\n\n0,2 1:0.5 4:1\n\n\n1 0:2\n\n",  # empty lines that are not points
        b"3 5 4\n0,2 1:0.5\n\n1 0:2\n",  # an empty line that is a point
        b"3 5 4\n 1:0.5 4:1\n1 0:2\n1:3\n",  # no labels
        b"2 5 4\n0,2\n3 \n",  # no features
        b"3 5 4\n \n0 1:1\n  \n",  # neither
        b"2 5 4\n0.0,2.000 1:0.5\n3. 0:2\n",  # labels as floats
        b"+1,+2 +1:+0.5 4:-1e-3\n",
        b"2,0,2 4:1 1:0.5 3:.5 0:5.\n",  # unsorted, and a label twice
        b"# 2 5 4\n0 1:1\n# a comment\n1 2:1 # another\n",
        b"\xef\xbb\xbf1 5 4\n0 1:1\n",
        b"\xef\xbb\xbf0 1:1\n",
        b"0 5 4\n",
        b"1 0 0\n \n",
    ],
)
def test_usual_variants_of_the_format_are_read(tmp_path, content):
    assert agrees(tmp_path, content)


def test_ids_can_start_at_one(tmp_path):
    assert agrees(tmp_path, b"1 5 4\n1,4 1:0.5 5:1\n", one_based=True)
    assert not agrees(tmp_path, b"1 5 4\n0 1:0.5\n", one_based=True)
    assert not agrees(tmp_path, b"1 5 4\n1 0:0.5\n", one_based=True)
    assert not agrees(tmp_path, b"1 5 4\n5 1:0.5\n", one_based=True)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "the file is empty; expected lines like '0,2 1:0.5 4:1'"),
        (b"\n\n", None, "there are no points"),
        (b"3 5 4\n0 1:1\n", 1, "the header declares 3 points, but the file has 1"),
        (
            b"1 5 4\n4 1:1\n",
            2,
            "label '4' is outside this space of 4 labels (0 to 3); the first line of the file says 4",
        ),
        (b"1 5 4\n0 1:1 5:1\n", 2, "feature '5' is outside this space of 5 features (0 to 4)"),
        (b"0 1:1\n0 1:nan\n", 2, "'1:nan' does not end in a finite number; expected a feature like '4:0.5'"),
        (b"0 1:inf\n", 1, "'1:inf' does not end in a finite number"),
        (b"0 1:1\n\n0 1:1e39\n", 3, "the value '1e39' is too large for float32"),
        (b"0 3:1 1:2 3:1\n", 1, "feature 3 occurs twice"),
        (b"0 1:1\n-1 1:1\n", 2, "'-1' is neither labels like '0,2' nor a feature like '4:0.5'"),
        (b"0.5 1:1\n", 1, "'0.5' is neither"),
        (b"0,,1 1:1\n", 1, "is neither"),
        (b"0, 1:1\n", 1, "is neither"),
        (b"0 1:1 7\n", 1, "expected a feature like '4:0.5' after the labels, found '7'"),
        (b"0 1:\n", 1, "'1:' does not end in a finite number"),
        (b"0 :1\n", 1, "expected a feature like '4:0.5' after the labels, found ':1'"),
        (b"0 1:1e\n", 1, "does not end in a finite number"),
        (b"0 1:0x1p3\n", 1, "does not end in a finite number"),
        (b"Call me Ishmael.\n", 1, "'Call' is neither labels"),
        (b'{"text": "a"}\n', 1, "is neither labels"),
        (b"PK\x03\x04\x00\x00\n", 1, "a binary file"),
        (b"0 1:1\n\xff\xfe\n", 2, "is neither labels"),
        (b"1 5 99999999999\n0 1:1\n", 1, "the header has 99999999999; at most 2147483647 is possible"),
        (b"0 99999999999999999999:1\n", 1, "feature '99999999999999999999' is outside"),
        (b"1 5 4\n" + b"9" * 500 + b" 1:1\n", 2, "label '9999999999999999999999999999999999999999...'"),
    ],
)
def test_an_error_is_one_line_and_names_file_and_line(tmp_path, content, line, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(tmp_path, content)
    place = f"{tmp_path / 'points.txt'}:" + (f"{line}:" if line else "")
    assert str(caught.value).startswith(place) and "\n" not in str(caught.value) and len(str(caught.value)) < 300
    with pytest.raises(InvalidFile):
        read_by_definition(content)


def test_a_label_out_of_range_is_a_label_error(tmp_path):
    with pytest.raises(LabelError):
        read(tmp_path, b"1 5 4\n4 1:1\n")


COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read(tmp_path, suffix):
    content = b"2 5 4\n0,2 1:0.5 4:1\n1 0:2\n"
    split = read(tmp_path, COMPRESS[suffix](content), f"points.txt{suffix}")
    assert identical(split.X, read(tmp_path, content).X)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["truncated", "flipped", "not compressed", "empty"])
def test_damaged_compressed_files_are_refused_in_one_line(tmp_path, suffix, damage):
    rows = b"".join(b"%d 1:%f\n" % (i % 7, random.Random(i).random()) for i in range(20000))
    content = bytearray(COMPRESS[suffix](rows))
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x55
    elif damage == "not compressed":
        content = bytearray(rows)
    else:
        content = bytearray()
    with pytest.raises(DataError, match=f"points.txt{suffix}") as caught:
        read(tmp_path, bytes(content), f"points.txt{suffix}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_errors_that_name_the_path(tmp_path):
    for path in (tmp_path / "nothing.txt", tmp_path):
        for cache in (True, False):
            with pytest.raises(DataError, match=re.escape(str(path))):
                sparse_text.read(path, cache=cache)


numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000).map(str),
    st.integers(0, 2**70).map(str),
    # Halfway between two float32 numbers, or so close to it that the double is the same.
    st.builds(
        "{}.{}{}".format, st.integers(2**23, 2**24).map(lambda i: 2 * i + 1), st.just("0" * 10), st.integers(0, 9)
    ),
    st.from_regex(r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
)


@given(st.lists(numbers, min_size=1, max_size=20))
@example(
    ["16777217", "16777219", "16777217.0000000000000000001", "0.5000000298023223876953125"]
)  # halfway, and almost halfway
@example(["3.4028235677973366e38", "3.40282356779733661637e38", "3.4028235677973366163754e38", "1e38"])
@example(["1e-45", "7.006492321624085e-46", "7.00649232162408535461864791645e-46", "1e-400"])
@example(["1" + "0" * 30, "0." + "0" * 40 + "1", "0" * 400 + "1", "00000000000000000000.5"])
def test_a_value_is_the_nearest_float32(tmp_path_factory, texts):
    tmp_path = tmp_path_factory.mktemp("values", numbered=True)
    for text in texts:
        agrees(tmp_path, b"0 1:" + text.encode() + b"\n")


def test_huge_exponents_are_read_quickly(tmp_path):
    split = read(tmp_path, b"0 1:0e999999999 2:1e-999999999 3:-1e-999999999\n")
    assert split.X.data.tolist() == [0, 0, 0]
    with pytest.raises(DataError, match="'1e999999999' is too large"):
        read(tmp_path, b"0 1:1e999999999\n")


inexact = st.sampled_from(
    ["16777217", "16777219.0000000000000000001", "1e-45", "0.5000000298023223876953125", "0.25", "7"]
)


@given(
    st.lists(st.tuples(st.integers(0, 30), inexact), unique_by=lambda x: x[0]), st.sampled_from(["", "3:1 3:1", "x"])
)
def test_exact_values_follow_their_feature_when_a_row_is_sorted(tmp_path_factory, features, end):
    row = " ".join(f"{f}:{v}" for f, v in features)
    content = f"0 5:1\n0 {row}\n0 {row}\n1 {end}\n"
    agrees(tmp_path_factory.mktemp("sorted", numbered=True), content.encode())


@given(numbers)
def test_nearest_float32_agrees_with_bisection(text):
    try:
        expected = nearest(text)
    except OverflowError:
        assert np.isinf(nearest_float32(text))
    else:
        assert nearest_float32(text).tobytes() == expected.tobytes()


fragments = st.text(alphabet="0123456789", min_size=1, max_size=3) | st.sampled_from(
    [
        " ",
        " ",
        " ",
        "\n",
        "\n",
        ":",
        ":",
        ",",
        ",",
        ".",
        "-",
        "+",
        "e",
        "E",
        "#",
        "\r",
        "\r\n",
        "\t",
        "\0",
        "x",
        "\xff",
        "nan",
    ]
)


@given(st.lists(fragments, max_size=40).map("".join), st.booleans())
def test_any_text_is_read_correctly_or_refused(tmp_path_factory, text, one_based):
    agrees(tmp_path_factory.mktemp("fragments", numbered=True), text.encode("latin-1"), one_based=one_based)


def test_mutated_files_are_read_correctly_or_refused(tmp_path):
    """Bytes of a valid file are changed, removed and duplicated, with a fixed seed."""
    generator = random.Random(4)
    valid = b"6 9 5\n0,2 1:0.5 4:1\n1 0:2 8:-1e-2\n 3:0.25\n4,0\n \n2 7:1.5 2:3\n"
    accepted = 0
    for _ in range(3000):
        text = bytearray(valid)
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(len(text))
            match generator.randrange(5):
                case 0:
                    text[at] = generator.choice(b"0123456789 ,:.\n\r-e#")
                case 1:
                    text[at] = generator.randrange(256)
                case 2:
                    del text[at : at + generator.randint(1, 5)]
                case 3:
                    text[at:at] = text[at : at + generator.randint(1, 9)]
                case _:
                    text[at] ^= 1 << generator.randrange(8)
            if not text:
                text = bytearray(b"\n")
        accepted += agrees(tmp_path, bytes(text))
    assert 100 < accepted < 2900


def test_the_size_of_blocks_does_not_matter(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    lines = []
    for i in range(3000):
        ids = generator.choice(500, generator.integers(0, 30), replace=False)
        labels = ",".join(map(str, generator.choice(50, generator.integers(0, 5), replace=False)))
        lines.append(f"{labels} " + " ".join(f"{f}:{generator.normal():.6g}" for f in ids) + "\n" * (1 + i % 2))
    content = "".join(lines).encode()
    X, Y = read_by_definition(content)
    whole = read(tmp_path, content)
    assert identical(whole.X, X) and identical(whole.Y, Y)
    for size in (64, 1000, 4096, 65536):
        monkeypatch.setattr(_block_reader, "BLOCK_BYTES", size)
        for name, file_content in (("points.txt", content), ("points.txt.gz", gzip.compress(content))):
            split = read(tmp_path, file_content, name)
            assert identical(split.X, X) and identical(split.Y, Y)
    broken = content + b"0 1:1\n0 1:x\n"
    last = broken.count(b"\n")
    for size in (64, 4096):
        monkeypatch.setattr(_block_reader, "BLOCK_BYTES", size)
        with pytest.raises(DataError, match=f"points.txt:{last}: '1:x'"):
            read(tmp_path, broken)


def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_block_reader, "BLOCK_BYTES", 256)
    monkeypatch.setattr(_block_reader, "MAX_LINE_BYTES", 4096)
    with pytest.raises(DataError, match=r"points.txt:2: the line has more than 4096 bytes"):
        read(tmp_path, b"0 1:1\n" + b"1:1 " * 100000)


rows = st.lists(
    st.tuples(
        st.sets(st.integers(0, 6)),
        st.dictionaries(st.integers(0, 12), st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=6),
    ),
    max_size=12,
)


def split_of(points):
    X = csr([sorted(x.items()) for _, x in points], 13, np.float32)
    return Split(X, csr([[(y, 1) for y in sorted(ys)] for ys, _ in points], 7, np.int32))


@given(rows, st.sampled_from(["", ".gz", ".xz", ".bz2"]), st.booleans())
def test_what_is_written_is_read_back_bit_for_bit(tmp_path_factory, points, suffix, comment):
    path = tmp_path_factory.mktemp("written", numbered=True) / f"points.txt{suffix}"
    split = split_of(points)
    sparse_text.write(path, split, comment_header=comment)
    back, declared = sparse_text.read(path, cache=False)
    assert declared and identical(back.X, split.X) and identical(back.Y, split.Y)
    assert [f.name for f in path.parent.iterdir()] == [path.name]


def test_every_exponent_of_float32_survives_the_round_trip(tmp_path):
    bits = np.random.default_rng(1).integers(0, 2**32, 50_000, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), np.uint32([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF]).view(np.float32)])
    values = values[np.isfinite(values)]
    split = Split(csr([list(enumerate(values))], len(values), np.float32), csr([[]], 1, np.int32))
    sparse_text.write(tmp_path / "points.txt", split)
    back, _ = sparse_text.read(tmp_path / "points.txt", cache=False)
    assert identical(back.X, split.X)
