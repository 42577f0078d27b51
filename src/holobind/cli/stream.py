"""Predictions for a stream of lines: in order, in constant memory, each as soon as its line has arrived.

    text    one text per line, for models trained on texts
    jsonl   one object per line: {"text": "..."} or {"features": {"12": 0.5, "40": 1}}
    xml     XML-Repository lines: `f:v f:v` or `l1,l2 f:v f:v`. Labels are ignored, and so is a header line
            `rows features labels`

A batch holds the lines of one read. Reads of a file are large, so its batches are full. A terminal or a slow pipe
returns single lines, and each gets its prediction at once.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from holobind._types import CsrArray
from holobind.cli.label_options import LabelOptions, Prediction, predict_labels
from holobind.data.csr import from_arrays
from holobind.data.files import BOM, DECOMPRESSION_ERRORS, MAX_LINE_BYTES, damaged, open_binary
from holobind.data.sparse_text import HEADER, parse_features, read_counts
from holobind.data.text_files import has_lone_surrogate
from holobind.errors import DataError, OptionError
from holobind.model import Model

LINE_FORMATS = ("text", "jsonl", "xml")
MAX_BATCH_LINES = 1024
CHUNK_BYTES = 1 << 20
STDIN = "stdin"
SPARSE_FEATURE = rb"\d+:[-+.\deE]+"
SPARSE_ROW = re.compile(rb"([\d,]+[ \t]+|[ \t]*)%b([ \t]+%b)*[ \t]*" % (SPARSE_FEATURE, SPARSE_FEATURE))
FLOAT32_MAX = 3.4e38

DEFAULT_OPTIONS = LabelOptions()
FeatureValues = dict[int, float]


def read_chunks(path: Path | None, max_uncompressed: int | None = None) -> Iterator[bytes]:
    """Read a file or a pipe, decompressed if its name says so, or standard input (None), in chunks as they arrive.

    max_uncompressed   bytes to which a compressed file may expand; by default 100 times its size, and at least 64 MB
    """
    if path is None:
        if sys.stdin is None:
            raise DataError(f"{STDIN} is closed; give a file, or pipe lines to this command")
        try:
            while chunk := sys.stdin.buffer.read1(CHUNK_BYTES):  # type: ignore[union-attr]
                yield chunk
        except OSError as error:  # a directory, for example
            raise DataError(f"{STDIN}: {error.strerror or error}") from error
        return
    with open_binary(path, max_uncompressed, pipes=True) as (stream, _):
        read = getattr(stream, "read1", stream.read)  # `read` of an unbuffered file returns what one read gives, too
        try:
            while chunk := read(CHUNK_BYTES):
                yield chunk
        except DECOMPRESSION_ERRORS as error:
            raise damaged(path, error) from error


def predictions(
    model: Model,
    chunks: Iterable[bytes],
    k: int = 5,
    *,
    format: str | None = None,  # noqa: A002 the name of the option
    source: str = STDIN,
    names: bool = True,
    threshold: float = -math.inf,
    options: LabelOptions = DEFAULT_OPTIONS,
    on_error: Callable[[DataError], None] | None = None,
) -> Iterator[list[Prediction]]:
    """Yield a list of predictions for each batch, one prediction per line, labels with the highest scores first:

        {"labels": [{"label": "red", "score": 0.9, "probability": 0.8}, ...]}

    format     one of `LINE_FORMATS`; None detects it from the model and the first line
    source     name of the stream in error messages
    names      give label names where the model has them, instead of label ids
    threshold  leave out labels whose score is not above it
    options    which labels a row gets, and whether they have probabilities
    on_error   called with the error of a line that cannot be parsed, whose prediction is then {"error": "..."}. Without
               it the error is raised, after the predictions of all lines before
    """
    if format not in (None, *LINE_FORMATS):
        raise OptionError(f"format {format!r} is unknown; choose one of {', '.join(LINE_FORMATS)}")
    options.check(model)
    parser: _LineParser | None = None
    for number, lines in _batches(chunks, source):
        n_header = 0
        if parser is None:
            lines[0] = lines[0].removeprefix(BOM)
            parser = _LineParser(model, format or detect_format(model, lines[0]), source)
            n_header = int(parser.is_header(lines[0]))
        batch: list[Prediction] = []
        for inputs in parser.parse(lines[n_header:], number + n_header):
            if isinstance(inputs, DataError):
                if on_error is None:
                    yield batch
                    raise inputs
                on_error(inputs)
                batch.append({"error": str(inputs)})
            else:
                batch += predict_labels(model, inputs, k, names, threshold, options)
        yield batch


def _batches(chunks: Iterable[bytes], source: str) -> Iterator[tuple[int, list[bytes]]]:
    """Split chunks into batches of lines without line ends; yield the number of the first line, and the lines."""
    number, unfinished, unfinished_bytes = 1, [b""], 0
    for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*unfinished, lines[0]])
            unfinished, unfinished_bytes = [], 0
        unfinished.append(last)
        unfinished_bytes += len(last)
        if unfinished_bytes > MAX_LINE_BYTES:
            raise DataError(
                f"{source}:{number}: the line has more than {MAX_LINE_BYTES} bytes; is this the right file?"
            )
        for first in range(0, len(lines), MAX_BATCH_LINES):
            yield number + first, [line.removesuffix(b"\r") for line in lines[first : first + MAX_BATCH_LINES]]
        number += len(lines)
    if any(unfinished):
        yield number, [b"".join(unfinished)]


def detect_format(model: Model, line: bytes) -> str:
    """The format of a stream from its first line. Sparse features are not taken for a text of numbers."""
    if line.lstrip().startswith(b"{"):
        return "jsonl"
    return "text" if model.reads_texts and not HEADER.fullmatch(line) and not SPARSE_ROW.fullmatch(line) else "xml"


class _LineParser:
    """Parses the lines of one stream into inputs of a model."""

    def __init__(self, model: Model, format: str, source: str) -> None:  # noqa: A002
        self.format, self.source, self.reads_texts = format, source, model.reads_texts
        self.n_features = model.network.n_features or 0
        if format == "text" and not self.reads_texts:
            raise OptionError(f"this model reads {self.n_features} features, not texts; choose format jsonl or xml")
        if format == "xml" and not self.n_features:
            raise OptionError("this model reads texts, not features; choose format text or jsonl")

    def is_header(self, line: bytes) -> bool:
        header = HEADER.fullmatch(line) if self.format == "xml" else None
        n_features = read_counts(header)[1] if header else self.n_features
        if n_features != self.n_features:
            hint = " made from texts; give it the texts" if self.reads_texts else ""
            raise DataError(
                f"{self.source}:1: the header declares {n_features} features; this model reads {self.n_features}{hint}"
            )
        return header is not None

    def parse(self, lines: list[bytes], number: int) -> Iterator[list[str] | CsrArray | DataError]:
        """Yield the inputs of runs of valid lines, as long as possible, and the error of each invalid line, in order.

        number   of the first line
        """
        if self.format == "xml":
            yield from self._parse_sparse(lines, number)
            return
        parse_line = self._parse_json if self.format == "jsonl" else self._parse_text
        parsed = (parse_line(line, number + i) for i, line in enumerate(lines))
        for kind, run in groupby(parsed, type):
            if kind is str:
                yield list(run)  # type: ignore[arg-type]
            elif kind is dict:
                yield _to_csr(list(run), self.n_features)  # type: ignore[arg-type]
            else:
                yield from run  # type: ignore[misc]

    def _parse_sparse(self, lines: list[bytes], number: int) -> Iterator[CsrArray | DataError]:
        """Parse all lines at once; if one is invalid, parse each half. k invalid lines cost O(k log n) calls."""
        try:
            rows = parse_features(lines, self.n_features, self.source, number) if lines else None
        except DataError as error:
            half = len(lines) // 2
            if not half:
                yield error
                return
            yield from self._parse_sparse(lines[:half], number)
            yield from self._parse_sparse(lines[half:], number + half)
            return
        if rows is not None:
            yield rows

    def _parse_text(self, line: bytes, number: int) -> str | DataError:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            return DataError(f"{self.source}:{number}: the line is not UTF-8 text ({error.reason})")

    def _parse_json(self, line: bytes, number: int) -> str | FeatureValues | DataError:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            return self._error(number, f"not JSON ({' '.join(str(error).split())[:80]})")
        if isinstance(record, dict) and self.reads_texts and isinstance(record.get("text"), str):
            if has_lone_surrogate([record["text"]]):
                return self._error(number, "the text has half a surrogate pair, which is no character")
            return str(record["text"])
        if not isinstance(record, dict) or not isinstance(record.get("features"), dict) or not self.n_features:
            return self._error(number, f"found {line.decode(errors='backslashreplace')[:60]}")
        row: FeatureValues = {}
        for key, value in record["features"].items():
            if len(key) > 10 or not key.isdecimal() or str(int(key)) != key or int(key) >= self.n_features:
                return self._error(number, f"feature {key[:20]!r} is not an id from 0 to {self.n_features - 1}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < FLOAT32_MAX:
                shown = str(value)[:20].encode("utf-8", "backslashreplace").decode()
                return self._error(number, f"feature {key} has the value {shown}, not a float32 number")
            row[int(key)] = float(value)
        return row

    def _error(self, number: int, what: str) -> DataError:
        expected = '{"text": "..."}' if self.reads_texts else '{"features": {"12": 0.5, ...}}'
        return DataError(f"{self.source}:{number}: {what}; expected {expected}")


def _to_csr(rows: Sequence[FeatureValues], n_features: int) -> CsrArray:
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((i for row in rows for i in sorted(row)), np.int32, int(indptr[-1]))
    values = np.fromiter((row[i] for row in rows for i in sorted(row)), np.float32, int(indptr[-1]))
    return from_arrays(values, indices, indptr, (len(rows), n_features))
