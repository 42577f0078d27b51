"""Parse sparse text (`sparse_text` describes the format) in blocks of whole lines.

Several threads parse blocks while the next blocks are read and decompressed. The compiled kernel is in `_parser`. This
module collects its arrays, turns its error codes into messages, and computes the few values that need exact arithmetic.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import MAX_EMAX, MIN_EMIN, ROUND_05UP, Context
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from holobind._types import ProgressCallback
from holobind.data._array_builder import ArrayBuilder
from holobind.data.csr import from_arrays
from holobind.data.dataset import Split
from holobind.data.files import (
    BOM,
    DECOMPRESSION_ERRORS,
    MAX_LINE_BYTES,
    OPEN_COMPRESSED,
    check_is_file,
    excerpt,
    id_limit,
    open_binary,
)
from holobind.errors import DataError, LabelError

BLOCK_BYTES = 1 << 20
MAX_THREADS = 8
MAX_IDS = 2**31 - 1  # ids are int32
MAX_COUNT_DIGITS = 18  # of a number in a header that is computed; longer ones are above MAX_IDS anyway
# Two float32 numbers, and their mean, differ in the first 200 digits. ROUND_05UP leaves a trace of the others.
SIGNIFICANT_DIGITS = Context(prec=200, rounding=ROUND_05UP, Emax=MAX_EMAX, Emin=MIN_EMIN)
HEADER = re.compile(rb"#?[ \t]*(\d+)[ \t]+(\d+)[ \t]+(\d+)[ \t]*\r?\n?")


def parse_file(
    path: Path,
    one_based: bool,
    on_progress: ProgressCallback | None,
    empty_is_row: bool = False,
    spill_dir: Path | None = None,
    max_uncompressed: int | None = None,
) -> tuple[Split, bool, int]:
    """The split, whether the file has a header, and the number of bytes of the (decompressed) text."""
    check_is_file(path)
    reader = _Reader(path, one_based, empty_is_row, spill_dir)
    if path.suffix.lower() not in OPEN_COMPRESSED:
        reader.max_ids = min(id_limit(path.stat().st_size, max_uncompressed), MAX_IDS)
    with open_binary(path, max_uncompressed) as (stream, fraction_read):
        try:
            _parse_stream(reader, stream, fraction_read, on_progress)
        except DECOMPRESSION_ERRORS as error:
            message = f"the {path.suffix} data is damaged or ends too early ({error})"
            raise reader.error(reader.n_lines + 1, message) from error
    n_rows = reader.label_counts.length
    if reader.header and n_rows != reader.header[0]:
        if n_rows + reader.n_empty_lines == reader.header[0] and not empty_is_row:
            return parse_file(path, one_based, on_progress, True, spill_dir, max_uncompressed)
        raise reader.error(1, f"the header declares {reader.header[0]} points, but the file has {n_rows}")
    if not n_rows and not reader.header:
        raise DataError(f"{path}: there are no points; expected lines like '0,2 1:0.5 4:1'")
    reader.check_sizes(id_limit(reader.n_bytes, max_uncompressed))
    return reader.build(), reader.header is not None, reader.n_bytes


def parse_lines(lines: Sequence[bytes], n_features: int, source: str, first_line: int) -> Split:
    """Parse lines of a stream, without their line ends, each of which is a row."""
    text = b"".join(line + b"\n" for line in lines)
    reader = _Reader(Path(source), one_based=False, empty_is_row=True, spill_dir=None)
    reader.header, reader.limit_source = (len(lines), n_features, MAX_IDS), "the model reads"
    reader.n_lines = first_line - 1
    block = _Block(len(text))
    block.text[:] = text
    block.whole = block.filled = len(text)
    reader.append(block, reader.parse(block), 1.0)
    return reader.build()


def split_from_arrays(arrays: dict[str, NDArray[Any]], shape: tuple[int, int, int]) -> Split:
    """The matrices from their CSR arrays and the number of points, features and labels."""
    n_points, n_features, n_labels = shape
    n = len(arrays["Y_indices"])
    # The ones of memory-mapped labels take no memory: all of them are one value.
    ones = np.broadcast_to(np.int32(1), n) if isinstance(arrays["Y_indices"], np.memmap) else np.ones(n, np.int32)
    return Split(
        from_arrays(arrays["X_data"], arrays["X_indices"], arrays["X_indptr"], (n_points, n_features)),
        from_arrays(ones, arrays["Y_indices"], arrays["Y_indptr"], (n_points, n_labels)),
    )


class _Block:
    """Buffers for one block of text and for what is parsed from it. The system provides only the pages in use."""

    def __init__(self, size: int) -> None:
        self.text = bytearray(size)
        self.first = 0  # position at which the first line begins
        self.whole = 0  # position at which the last whole line ends
        self.filled = 0  # position at which the text ends
        self.labels = np.empty(size // 2 + 2, np.int32)
        self.label_counts = np.empty(size + 1, np.int32)
        self.ids = np.empty(size // 4 + 2, np.int32)
        self.values = np.empty(size // 4 + 2, np.float32)
        self.id_counts = np.empty(size + 1, np.int32)
        self.inexact = np.empty((size // 4 + 2, 3), np.int64)

    def fill(self, stream: IO[bytes], rest: bytes) -> bool:
        """Fill the block with `rest` and what follows it in the stream. Returns whether the stream has ended."""
        self.first = 0
        self.text[: len(rest)] = rest
        self.filled = len(rest)
        with memoryview(self.text) as view:
            while self.filled < len(view) - 1:  # one byte is reserved for a final line feed
                n_read = stream.readinto(view[self.filled : -1])  # type: ignore[attr-defined]
                if not n_read:
                    if self.filled and self.text[self.filled - 1] != ord("\n"):
                        self.text[self.filled] = ord("\n")
                        self.filled += 1
                    self.whole = self.filled
                    return True
                self.filled += n_read
        self.whole = self.text.rfind(b"\n", 0, self.filled) + 1
        return False


class _Reader:
    """The state of reading one file: its header, and the arrays parsed so far."""

    def __init__(self, path: Path, one_based: bool, empty_is_row: bool, spill_dir: Path | None) -> None:
        self.path, self.base, self.empty_is_row = path, int(one_based), empty_is_row
        self.header: tuple[int, int, int] | None = None
        self.limit_source = "the first line of the file says"
        self.max_ids = MAX_IDS  # features or labels that a file without a header may have
        self.labels, self.ids, self.values, self.label_counts, self.id_counts = (
            ArrayBuilder(dtype, spill_dir) for dtype in (np.int32, np.int32, np.float32, np.int32, np.int32)
        )
        self.n_lines = self.n_empty_lines = self.n_bytes = 0
        self.max_label = self.max_feature = -1

    def read_header(self, block: _Block) -> None:
        """Read the header, if there is one, from the first block of the file."""
        if not block.filled:
            raise DataError(f"{self.path}: the file is empty; expected lines like '0,2 1:0.5 4:1'")
        line = bytes(block.text[: block.text.find(b"\n") + 1])
        skip = len(BOM) if line.startswith(BOM) else 0
        if found := HEADER.fullmatch(line[skip:]):
            self.header = read_counts(found)
            if max(self.header) > MAX_IDS:
                largest = max(
                    (digits.lstrip(b"0") for digits in found.groups()), key=lambda digits: (len(digits), digits)
                )
                raise self.error(1, f"the header has {excerpt(largest)[1:-1]}; at most {MAX_IDS} is possible")
            self.check_sizes(self.max_ids)
            skip = len(line)
            self.n_lines = 1
        block.first = skip

    def check_sizes(self, limit: int) -> None:
        """Refuse more features or labels than `limit`: arrays of that length are made from now on."""
        _, n_features, n_labels = self.header or (0, self.max_feature + 1, self.max_label + 1)
        if max(n_features, n_labels) > limit:
            where = f"{self.path}:1: the header declares" if self.header else f"{self.path}: its ids imply"
            raise DataError(f"{where} {n_features} features and {n_labels} labels; {_id_limit_hint(limit)}")

    def parse(self, block: _Block) -> tuple[int, ...]:
        from holobind.data import _parser as kernel

        _, n_features, n_labels = self.header or (0, self.max_ids, self.max_ids)
        return kernel.parse(
            np.frombuffer(block.text, np.uint8),
            block.first,
            block.whole,
            self.base,
            n_features,
            n_labels,
            self.empty_is_row,
            block.labels,
            block.label_counts,
            block.ids,
            block.values,
            block.id_counts,
            block.inexact,
        )

    def append(self, block: _Block, parsed: tuple[int, ...], fraction_read: float) -> None:
        """Append the rows that were parsed from the next block."""
        code, at, n_rows, n_label_entries, n_entries, n_inexact, n_lines, n_empty_lines, max_label, max_feature = parsed
        for entry, first, last in block.inexact[:n_inexact].tolist():
            text = bytes(block.text[first:last])
            value = nearest_float32(text.decode())
            if not np.isfinite(value):
                line = self.n_lines + block.text.count(b"\n", block.first, first) + 1
                raise self.error(line, f"the value {excerpt(text)} is too large for float32")
            block.values[entry] = value
        if code:
            raise self.syntax_error(block.text, code, at, self.n_lines + n_lines + 1)
        remaining = 1 / max(fraction_read, 1e-3) - 1
        self.labels.append(block.labels[:n_label_entries], remaining)
        self.ids.append(block.ids[:n_entries], remaining)
        self.values.append(block.values[:n_entries], remaining)
        self.label_counts.append(block.label_counts[:n_rows], remaining)
        self.id_counts.append(block.id_counts[:n_rows], remaining)
        self.n_lines += n_lines
        self.n_empty_lines += n_empty_lines
        self.n_bytes += block.whole
        self.max_label = max(self.max_label, max_label)
        self.max_feature = max(self.max_feature, max_feature)

    def build(self) -> Split:
        n_points = self.label_counts.length
        _, n_features, n_labels = self.header or (0, self.max_feature + 1, self.max_label + 1)
        arrays = {
            "X_data": self.values.build(),
            "X_indices": self.ids.build(),
            "X_indptr": self.id_counts.build_offsets(),
            "Y_indices": self.labels.build(),
            "Y_indptr": self.label_counts.build_offsets(),
        }
        return split_from_arrays(arrays, (n_points, n_features, n_labels))

    def error(self, line: int, message: str, kind: type[DataError] = DataError) -> DataError:
        return kind(f"{self.path}:{line}: {message}")

    def limit_reason(self, n: int) -> str:
        if self.header:
            return f"{self.limit_source} {n}"
        return f"ids have 31 bits, so there are at most {n}" if n == MAX_IDS else _id_limit_hint(n)

    def syntax_error(self, text: bytearray, code: int, at: int, line: int) -> DataError:
        """The error that the parser reported as a code and a position."""
        from holobind.data import _parser as kernel

        match = re.compile(rb"[^ \t\r\n]*").match(text, at)
        field = match[0] if match else b""
        if b"\0" in field:
            return self.error(line, f"a binary file, with {excerpt(field)}; expected lines like '0,2 1:0.5 4:1'")
        _, n_features, n_labels = self.header or (0, self.max_ids, self.max_ids)
        if code == kernel.LABEL_RANGE:
            label = excerpt(field.split(b",")[0])
            hint = "; ids start at 1 here" if self.base else ""
            return self.error(
                line,
                f"label {label} is outside this space of {n_labels} labels "
                f"({self.base} to {n_labels - 1 + self.base}); {self.limit_reason(n_labels)}{hint}",
                LabelError,
            )
        if code == kernel.FEATURE_RANGE:
            feature = excerpt(field.split(b":")[0])
            return self.error(
                line,
                f"feature {feature} is outside this space of {n_features} features "
                f"({self.base} to {n_features - 1 + self.base}); {self.limit_reason(n_features)}",
            )
        if code == kernel.DUPLICATE_FEATURE:
            row = re.compile(rb"[^\n#]*").match(text, at)
            known: set[int] = set()
            for feature in re.findall(rb"[ \t+](\d+):|^\+?(\d+):", row[0] if row else b""):
                number = int((feature[0] or feature[1]).lstrip(b"0") or b"0")  # int() refuses 4,301 digits
                if number in known:
                    return self.error(line, f"feature {number} occurs twice; a point has one value for each feature")
                known.add(number)
        if code == kernel.BAD_LABEL:
            return self.error(line, f"{excerpt(field)} is neither labels like '0,2' nor a feature like '4:0.5'")
        if code == kernel.BAD_VALUE:
            return self.error(
                line, f"{excerpt(field)} does not end in a finite number; expected a feature like '4:0.5'"
            )
        return self.error(line, f"expected a feature like '4:0.5' after the labels, found {excerpt(field)}")


def _parse_stream(
    reader: _Reader, stream: IO[bytes], fraction_read: Callable[[], float], on_progress: ProgressCallback | None
) -> None:
    block, ended = _fill_block(_Block(BLOCK_BYTES), stream, b"")
    reader.read_header(block)
    if ended:
        reader.append(block, reader.parse(block), 1.0)
        return
    n_threads = min(os.cpu_count() or 1, MAX_THREADS)
    free = [_Block(BLOCK_BYTES) for _ in range(n_threads)]
    busy: deque[tuple[_Block, Future[tuple[int, ...]], float]] = deque()

    def finish_oldest() -> None:
        block, parsed, fraction = busy.popleft()
        reader.append(block, parsed.result(), fraction)
        free.append(block)
        if on_progress:
            on_progress(f"reading {reader.path.name}", fraction)

    with ThreadPoolExecutor(n_threads) as pool:
        while block.whole:
            busy.append((block, pool.submit(reader.parse, block), fraction_read()))
            if ended:
                break
            if not free:
                finish_oldest()
            block, ended = _fill_block(free.pop(), stream, bytes(block.text[block.whole : block.filled]))
        while busy:
            finish_oldest()
    if not block.whole and not ended:
        raise reader.error(
            reader.n_lines + 1, f"the line has more than {MAX_LINE_BYTES} bytes; is this the right file?"
        )


def _fill_block(block: _Block, stream: IO[bytes], rest: bytes) -> tuple[_Block, bool]:
    """Read whole lines into `block`, or into a larger block if a line does not fit.

    Returns the block and whether the stream has ended. The block has no whole line if the stream is exhausted, or if a
    line is longer than MAX_LINE_BYTES.
    """
    if len(rest) + 2 > len(block.text):
        block = _Block(2 * len(rest) + 2)
    ended = block.fill(stream, rest)
    while not block.whole and not ended and len(block.text) < MAX_LINE_BYTES:
        larger = _Block(2 * len(block.text))
        ended = larger.fill(stream, bytes(block.text[: block.filled]))
        block = larger
    return block, ended


def read_counts(header: re.Match[bytes]) -> tuple[int, int, int]:
    """The points, features and labels of a header. Numbers of more than 18 digits become the largest of 18 digits."""
    digits = (header[i].lstrip(b"0") or b"0" for i in (1, 2, 3))
    points, features, labels = (int(d) if len(d) <= MAX_COUNT_DIGITS else 10**MAX_COUNT_DIGITS - 1 for d in digits)
    return points, features, labels


def _id_limit_hint(limit: int) -> str:
    return f"a file of this size may have {limit}; --max-uncompressed 2GB (in Python: max_uncompressed) raises that"


def nearest_float32(text: str) -> np.float32:
    """The float32 nearest to a decimal number, ties to even. Exact, where np.float32(float(text)) rounds twice."""
    double = float(text)
    with np.errstate(over="ignore"):
        guess = np.float32(double)
        below, above = (np.nextafter(guess, np.float32(sign * np.inf)) for sign in (-1, 1))
    if double == 0 or not np.isfinite(double):
        return np.float32(double)
    exact = Fraction(SIGNIFICANT_DIGITS.create_decimal(text))
    if np.isinf(guess):
        # A number is infinite from half a step above the largest float32 on.
        limit = Fraction(2**128) - Fraction(2**103)
        largest = np.copysign(np.finfo(np.float32).max, np.float32(np.sign(double)))
        return largest if abs(exact) < limit else guess
    choices = [c for c in (guess, below, above) if np.isfinite(c)]
    return min(choices, key=lambda c: (abs(Fraction(float(c)) - exact), int(np.float32(c).view(np.uint32)) & 1))
