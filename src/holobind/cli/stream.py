"""Predictions for a stream of lines: in order, in constant memory, each as soon as its line has arrived.

    text    one text per line, for models trained on texts
    jsonl   one object per line: {"text": "..."} or {"features": {"12": 0.5, "40": 1}}
    xml     XML-Repository lines: `f:v f:v` or `l1,l2 f:v f:v`. Labels are ignored, and so is a header line
            `rows features labels`
    csv, tsv, annif, fasttext, parquet, arrow   a table of texts (`holobind.data.tables`), for models trained on texts

A record with an id gets a prediction with that id.

A batch holds the lines of one read. Reads of a file are large, so its batches are full. A terminal or a slow pipe
returns single lines, and each gets its prediction at once.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from holobind._types import CsrArray
from holobind.cli.label_options import LabelOptions, Prediction, predict_labels
from holobind.data import files
from holobind.data.csr import from_arrays
from holobind.data.files import BOM, MAX_LINE_BYTES, uncompressed_name
from holobind.data.sparse_text import HEADER, parse_features, read_counts
from holobind.data.tables import TABLE_FORMATS, Layout, TableOptions, arrange, find_format, open_table
from holobind.data.tables.layout import choose_fields, lookup
from holobind.data.tables.lines import Lines
from holobind.data.tables.reading import MAGIC
from holobind.data.tables.sources import Source, from_lines, is_header, recognise
from holobind.errors import DataError, OptionError
from holobind.model import Model

LINE_FORMATS = ("text", "jsonl", "xml")
INPUT_FORMATS = tuple(dict.fromkeys((*LINE_FORMATS, *TABLE_FORMATS)))
BINARY_FORMATS = ("parquet", "arrow")
MAX_BATCH_LINES = 1024
CHUNK_BYTES = 1 << 20
STDIN = "stdin"
SPARSE_FEATURE = rb"\d+:[-+.\deE]+"
SPARSE_ROW = re.compile(rb"([\d,]+[ \t]+|[ \t]*)%b([ \t]+%b)*[ \t]*" % (SPARSE_FEATURE, SPARSE_FEATURE))
FLOAT32_MAX = 3.4e38

DEFAULT_OPTIONS = LabelOptions()
FeatureValues = dict[int, float]


@dataclass(frozen=True)
class TextsWithIds:
    """Texts of records that have ids."""

    texts: list[str]
    ids: list[Any]


Parsed = list[str] | TextsWithIds | CsrArray | DataError


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
    yield from files.read_chunks(path, max_uncompressed, pipes=True)


def open_input(
    path: Path | None, options: TableOptions | None = None, max_uncompressed: int | None = None
) -> Iterable[bytes] | Source:
    """A table, where the input is a folder or a binary file of columns; otherwise its bytes in chunks."""
    options = options or TableOptions()
    if path is not None and (path.is_dir() or path.is_file()):
        if path.is_dir():
            chosen = find_format(path) or "annif"
        else:
            start = next(files.read_chunks(path, max_uncompressed), b"")
            chosen = options.format or next((name for magic, name in MAGIC.items() if start.startswith(magic)), "")
        if path.is_dir() or chosen in BINARY_FORMATS:
            return open_table(path, chosen, options, max_uncompressed, labelled=False)
    elif options.format in BINARY_FORMATS:
        raise OptionError(f"{options.format} is read from files, not from {path or STDIN}; give the name of a file")
    return read_chunks(path, max_uncompressed)


def predictions(
    model: Model,
    chunks: Iterable[bytes] | Source,
    k: int = 5,
    *,
    format: str | None = None,  # noqa: A002 the name of the option
    fields: TableOptions | None = None,
    on_layout: Callable[[Layout], None] | None = None,
    source: str = STDIN,
    names: bool = True,
    threshold: float = -math.inf,
    options: LabelOptions = DEFAULT_OPTIONS,
    on_error: Callable[[DataError], None] | None = None,
) -> Iterator[list[Prediction]]:
    """Yield a list of predictions for each batch, one prediction per line, labels with the highest scores first:

        {"labels": [{"label": "red", "score": 0.9, "probability": 0.8}, ...]}

    A line without any word or feature that the model knows has no labels, and says so:

        {"labels": [], "unknown": "no known word"}

    chunks     the bytes of a stream, or a table
    format     one of `INPUT_FORMATS`; None detects it from the model, the first line and the suffix of `source`
    fields     the fields of a table, or of JSON lines
    on_layout  called with how a table is read
    source     name of the stream in error messages
    names      give label names where the model has them, instead of label ids
    threshold  leave out labels whose score is not above it
    options    which labels a row gets, and whether they have probabilities
    on_error   called with the error of a line that cannot be parsed, whose prediction is then {"error": "..."}. Without
               it the error is raised, after the predictions of all lines before
    """
    if format not in (None, *INPUT_FORMATS):
        raise OptionError(f"format {format!r} is unknown; choose one of {', '.join(INPUT_FORMATS)}")
    options.check(model)
    for parsed in _parsed_batches(model, chunks, format, fields or TableOptions(), source, on_layout):
        batch: list[Prediction] = []
        for inputs in parsed:
            if isinstance(inputs, DataError):
                if on_error is None:
                    yield batch
                    raise inputs
                on_error(inputs)
                batch.append({"error": str(inputs)})
            elif isinstance(inputs, TextsWithIds):
                found = predict_labels(model, inputs.texts, k, names, threshold, options)
                batch += [{"id": id_, **one} for id_, one in zip(inputs.ids, found, strict=True)]
            else:
                batch += predict_labels(model, inputs, k, names, threshold, options)
        yield batch


def _parsed_batches(
    model: Model,
    chunks: Iterable[bytes] | Source,
    format: str | None,  # noqa: A002
    options: TableOptions,
    source: str,
    on_layout: Callable[[Layout], None] | None,
) -> Iterator[Iterable[Parsed]]:
    """The inputs of each batch."""
    if not isinstance(chunks, Source):
        first, chunks = _first_line(chunks)
        table = _table_format(model, first, source) if format is None else format
        if table in TABLE_FORMATS and table != "jsonl":
            _check_reads_texts(model)
            if table in BINARY_FORMATS:
                raise OptionError(f"{table} is read from files, not from {source}; give the name of a file")
            chunks = from_lines(Lines(chunks, source), table, options, labelled=False)
    if isinstance(chunks, Source):
        _check_reads_texts(model)
        yield from _table_batches(chunks, options, on_layout)
        return
    parser: _LineParser | None = None
    for number, lines in _batches(chunks, source):
        n_header = 0
        if parser is None:
            lines[0] = lines[0].removeprefix(BOM)
            parser = _LineParser(model, format or detect_format(model, lines[0]), source, options)
            n_header = int(parser.is_header(lines[0]))
        yield parser.parse(lines[n_header:], number + n_header)


def _check_reads_texts(model: Model) -> None:
    if not model.reads_texts:
        n_features = model.network.n_features or 0
        raise OptionError(f"this model reads {n_features} features, not texts; choose format jsonl or xml")


def _first_line(chunks: Iterable[bytes]) -> tuple[str, Iterable[bytes]]:
    """The first line of a stream, cut after a chunk or more, and the whole stream."""
    following = iter(chunks)
    start = b""
    while b"\n" not in start and len(start) < CHUNK_BYTES and (chunk := next(following, b"")):
        start += chunk
    line = start.split(b"\n", 1)[0].removeprefix(BOM).removesuffix(b"\r")
    return line.decode(errors="replace"), chain([start] if start else [], following)


def _table_format(model: Model, line: str, source: str) -> str | None:
    """The format of a table of texts by the name and the first line of a stream; None if it has plain lines."""
    suffix = Path(uncompressed_name(Path(source))).suffix
    found = recognise([line], suffix) if model.reads_texts else None
    if suffix in (".csv", ".tsv") or found in ("annif", "fasttext"):
        return found
    return "csv" if model.reads_texts and is_header(line) else None


def _table_batches(
    source: Source, options: TableOptions, on_layout: Callable[[Layout], None] | None
) -> Iterator[list[Parsed]]:
    """The texts of a table, in batches of what one read of its stream gives."""
    layout, records = arrange(source, options, labelled=False)
    if on_layout is not None:
        on_layout(layout)
    parsed: list[str | tuple[str, Any] | DataError] = []
    for number, record in records:
        try:
            if isinstance(record, DataError):
                raise record
            text, id_ = layout.text_of(record), layout.id_of(record)
            parsed.append(text if layout.fields.id is None else (text, id_))
        except DataError as error:
            parsed.append(error if error is record else DataError(f"{source.place(number)}: {error}"))
        if len(parsed) >= MAX_BATCH_LINES or (source.lines is not None and source.lines.waiting):
            yield list(_runs(parsed))
            parsed = []
    if parsed:
        yield list(_runs(parsed))


def _runs(parsed: Iterable[Any]) -> Iterator[Any]:
    """Runs of texts, of texts with ids, or of rows, as long as possible, and single errors."""
    for kind, run in groupby(parsed, type):
        if kind is str:
            yield list(run)
        elif kind is tuple:
            texts, ids = zip(*run, strict=True)
            yield TextsWithIds(list(texts), list(ids))
        elif kind is dict:
            yield list(run)
        else:
            yield from run


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

    def __init__(self, model: Model, format: str, source: str, options: TableOptions) -> None:  # noqa: A002
        self.format, self.source, self.reads_texts = format, source, model.reads_texts
        self.options = options
        self.layout: Layout | None = None  # of JSON lines
        self.n_features = 0 if model.tokenizer is not None else model.network.n_features or 0
        if format == "text":
            _check_reads_texts(model)
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

    def parse(self, lines: list[bytes], number: int) -> Iterator[Parsed]:
        """Yield the inputs of runs of valid lines, as long as possible, and the error of each invalid line, in order.

        number   of the first line
        """
        if self.format == "xml":
            yield from self._parse_sparse(lines, number)
            return
        parse_line = self._parse_json if self.format == "jsonl" else self._parse_text
        parsed = (parse_line(line, number + i) for i, line in enumerate(lines))
        for run in _runs(parsed):
            is_features = isinstance(run, list) and run and isinstance(run[0], dict)
            yield _to_csr(run, self.n_features) if is_features else run

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

    def _parse_json(self, line: bytes, number: int) -> str | tuple[str, Any] | FeatureValues | DataError:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            return self._error(number, f"not JSON ({' '.join(str(error).split())[:80]})")
        if isinstance(record, dict) and self.reads_texts and (layout := self._layout_of(record)) is not None:
            try:
                text = layout.text_of(record)
                id_ = layout.id_of(record)
            except DataError as error:
                found = f"found {line.decode(errors='backslashreplace')[:60]}"
                return self._error(number, found if str(error).startswith("expected") else str(error))
            return text if id_ is None else (text, id_)
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

    def _layout_of(self, record: dict[str, Any]) -> Layout | None:
        """The layout that the caller names, or that of the first record with usual names; None where none fits."""
        if self.layout is None:
            try:
                fields = choose_fields(self.source, list(record), self.options, labelled=False, complete=False)
            except DataError:
                return None
            if not any(isinstance(lookup(record, name), str) for name, _ in fields.text):
                return None
            self.layout = Layout("JSON lines", fields, strict=True)
        return self.layout

    def _error(self, number: int, what: str) -> DataError:
        expected = 'expected {"text": "..."}' if self.reads_texts else 'expected {"features": {"12": 0.5, ...}}'
        if self.reads_texts and self.options.text is not None:
            names = ", ".join(f'"{name}": "..."' for name, _ in self.options.text)
            expected = f"expected {{{names}}}"
        return DataError(f"{self.source}:{number}: {what}; {expected}")


def _to_csr(rows: Sequence[FeatureValues], n_features: int) -> CsrArray:
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((i for row in rows for i in sorted(row)), np.int32, int(indptr[-1]))
    values = np.fromiter((row[i] for row in rows for i in sorted(row)), np.float32, int(indptr[-1]))
    return from_arrays(values, indices, indptr, (len(rows), n_features))
