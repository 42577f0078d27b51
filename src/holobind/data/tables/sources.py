"""Tables as streams of records: delimited text, JSON lines, fastText's and Annif's files.

Each function takes the lines of a stream and gives a `Source`: the names of the fields, and the records one by one.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from holobind.data.tables.delimited import Row, find_delimiter, split_rows, split_tabs
from holobind.data.tables.layout import KNOWN, LABELS, TEXT, TITLE, Record, normalised, shown
from holobind.data.tables.lines import Lines
from holobind.data.tables.options import TableOptions
from holobind.data.tables.separators import URI, WHITE_SPACE
from holobind.errors import DataError

LABEL_PREFIX = "__label__"
SAMPLE_LINES = 200
MAX_HEADER_CHARACTERS, MAX_HEADER_WORDS = 30, 3
MIN_HEADER_ROWS = 20  # for a judgement about a first row with unknown names
KINDS = {",": "CSV", "\t": "TSV", ";": "CSV with ';'", "|": "CSV with '|'"}
HEADER_CELL = re.compile(r"[^\W\d][\w .-]{0,39}")

NumberedRecords = Iterator[tuple[int, Record | DataError]]


@dataclass
class Source:
    """A table that is read.

    name        of the file, in messages
    kind        the format in words
    fields      the names of all fields; of JSON lines, those of the first record
    records     takes the names of the fields that are wanted; yields the number of a line or row, and the record
    separator   what separates labels, where the format defines it
    strict      see `Layout`
    numbers_are_lines   whether the number of a record is that of its line
    plain       the format defines texts and labels, so that no field needs to be chosen
    """

    name: str
    kind: str
    fields: list[str]
    records: Callable[[Sequence[str]], NumberedRecords]
    separator: str | None = None
    strict: bool = False
    plain: bool = False
    lines: Lines | None = None
    notes: list[str] = field(default_factory=list)

    def place(self, number: int) -> str:
        return f"{self.name}:{number}"


def from_lines(lines: Lines, format: str, options: TableOptions, *, labelled: bool = True) -> Source:  # noqa: A002
    """The table of a stream of lines.

    format     csv, tsv, jsonl, annif or fasttext
    labelled   its labels are wanted
    """
    make = {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "annif": _annif, "fasttext": _fasttext}[format]
    return make(lines, options, labelled)


def recognise(lines: list[str], suffix: str) -> str | None:
    """The format of a text by its first lines and the suffix of its name; None if it is no table.

    The last line may be cut.
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        return {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}.get(suffix)
    if suffix == ".jsonl" or lines[0].lstrip().startswith("{"):
        return "jsonl"
    if sum(is_fasttext(line) for line in lines) * 2 > len(lines):
        return "fasttext"
    if suffix == ".csv":
        return "csv"
    tabs = [line.partition("\t")[2] for line in lines[:-1] or lines if "\t" in line]
    if tabs and all(URI.fullmatch(part) for rest in tabs for part in rest.split()) and any(map(str.split, tabs)):
        return "annif"
    if suffix == ".tsv":
        return "tsv"
    # Rows of sparse features have digits and punctuation, and the e of 1e-5.
    return "tsv" if "\t" in lines[0] and re.search(r"[^\W\d_eE]", lines[0]) and lines[0][0] != "#" else None


def is_fasttext(line: str) -> bool:
    return line.startswith(LABEL_PREFIX) or f" {LABEL_PREFIX}" in line


def is_header(line: str) -> bool:
    """Whether a line must be a header: all cells are names, one is a usual name of texts, another of a field."""
    cells = [cell.strip().strip('"') for cell in line.split(find_delimiter(line))]
    names = {normalised(cell) for cell in cells}
    return (
        len(cells) > 1
        and all(HEADER_CELL.fullmatch(cell) for cell in cells)
        and len(names & KNOWN) > 1
        and bool(names & {*TEXT, *TITLE})
    )


def _csv(lines: Lines, options: TableOptions, labelled: bool) -> Source:
    first = lines.peek_first()
    delimiter = find_delimiter(first or "")
    rows = split_rows(lines, delimiter)
    if options.numbered:
        return _table(lines, rows, KINDS[delimiter] + " without a header", None, options)
    header = next(rows, (1, ["text", "labels"]))[1]  # a file without any row has no rows
    if isinstance(header, DataError):
        raise header
    known = any(normalised(cell) in KNOWN for cell in header)
    if not known and not options.names:
        raise DataError(
            f"{lines.name}: its first row, {shown(header)}, has no usual name of a field like text or labels; pass "
            f"--text-field and --label-field with names of that row, or with numbers from 1 if the file has no header"
        )
    return _table(lines, rows, KINDS[delimiter], header, options)


def _tsv(lines: Lines, options: TableOptions, labelled: bool) -> Source:
    """A header and rows, or `text TAB label TAB label` without a header."""
    sample = [line.split("\t") for line in lines.peek(SAMPLE_LINES)]
    if options.numbered:
        return _table(lines, split_tabs(lines), "TSV without a header", None, options)
    first = {normalised(cell) for cell in sample[0]} if sample else set()
    has_names = bool(first & {*TEXT, *TITLE}) and (bool(first & {*LABELS}) or (not labelled and len(sample[0]) > 1))
    if options.names or (options.format != "tsv" and has_names):
        rows = split_rows(lines, "\t")
        header = next(rows, (1, list[str]()))[1]
        if isinstance(header, DataError):
            raise header
        return _table(lines, rows, "TSV", header, options)
    if options.format != "tsv" and _seems_header(sample):
        raise DataError(
            f"{lines.name}: its first row, {shown(sample[0])}, seems to be a header; pass --text-field and "
            f"--label-field with names of that row, or --format tsv if it is a text and its labels"
        )

    def records(_: Sequence[str]) -> NumberedRecords:
        one_label = all(len(row) <= 2 for row in sample)
        for number, row in split_tabs(lines):
            assert isinstance(row, list)
            labels = [label for label in row[1:] if label]
            yield number, {"text": row[0], "labels": "".join(labels) if one_label and len(labels) < 2 else labels}

    return Source(lines.name, "TSV without a header", ["text", "labels"], records, plain=True, lines=lines)


def _seems_header(sample: list[list[str]]) -> bool:
    """Whether the first row is one of names: short, with a usual name of a field, or unlike all other rows."""
    first, rest = sample[0] if sample else [], sample[1:]
    short = all(cell and len(cell) <= MAX_HEADER_CHARACTERS and len(cell.split()) <= MAX_HEADER_WORDS for cell in first)
    if len(first) < 2 or not short or len(set(first)) < len(first) or not rest:
        return False
    others = {cell for row in rest for cell in row}
    if others & set(first):
        return False
    if any(normalised(cell) in KNOWN for cell in first):
        return True
    lengths = median(len(row[0]) for row in rest)
    table = len(rest) >= MIN_HEADER_ROWS and all(len(row) == len(first) for row in rest)
    return table and lengths >= 20 and lengths >= 4 * len(first[0])


def _table(lines: Lines, rows: Iterator[Row], kind: str, header: list[str] | None, options: TableOptions) -> Source:
    """Rows with the names of a header, or with numbers from 1."""
    if header is None:
        n_fields = max(int(name[:5]) for name in options.names)
        fields = [str(i + 1) for i in range(n_fields)]
    else:
        fields = [cell.strip() or str(i) for i, cell in enumerate(header, 1)]
        if twice := next((name for i, name in enumerate(fields) if name in fields[:i]), None):
            raise DataError(f"{lines.name}: the field {twice[:40]!r} is twice in its header; rename one of them")

    def records(_: Sequence[str]) -> NumberedRecords:
        for number, row in rows:
            if isinstance(row, DataError):
                yield number, row
            elif len(row) < len(fields) or (header is not None and any(row[len(fields) :])):
                yield number, _wrong_number(lines.name, number, len(row), fields, kind)
            else:
                yield number, dict(zip(fields, row, strict=False))

    return Source(lines.name, kind, fields, records, lines=lines)


def _wrong_number(name: str, number: int, found: int, fields: list[str], kind: str) -> DataError:
    return DataError(
        f"{name}:{number}: the row has {found} fields, and {len(fields)} are expected: {shown(fields)}; a field that "
        f"contains the delimiter must be quoted ({kind})"
    )


def _jsonl(lines: Lines, options: TableOptions, labelled: bool) -> Source:
    first = lines.peek_first()
    try:
        record = json.loads(first or "{}")
    except (ValueError, RecursionError):
        record = None  # `records` raises the error, with its line

    def records(_: Sequence[str]) -> NumberedRecords:
        for number, line in lines:
            if line.strip():
                yield number, _json_record(line, lines.name, number)

    fields = list(record) if isinstance(record, dict) and record else ["text", "labels"]
    return Source(lines.name, "JSON lines", fields, records, strict=True, lines=lines)


def _json_record(line: str, name: str, number: int) -> Record | DataError:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return DataError(f"{name}:{number}: not JSON ({' '.join(str(error).split())[:80]})")
    if not isinstance(record, dict):
        return DataError(f'{name}:{number}: expected {{"text": "...", "labels": ["...", "..."]}}')
    return record


def _annif(lines: Lines, options: TableOptions, labelled: bool) -> Source:
    def records(_: Sequence[str]) -> NumberedRecords:
        for number, line in lines:
            text, _tab, uris = line.partition("\t")
            if line.strip():
                yield number, {"text": text, "subjects": uris}

    return Source(
        lines.name, "Annif's TSV", ["text", "subjects"], records, separator=WHITE_SPACE, plain=True, lines=lines
    )


def _fasttext(lines: Lines, options: TableOptions, labelled: bool) -> Source:
    def records(_: Sequence[str]) -> NumberedRecords:
        for number, line in lines:
            if line.strip():
                yield number, fasttext_record(line)

    return Source(lines.name, "fastText", ["text", LABEL_PREFIX], records, plain=True, lines=lines)


def fasttext_record(line: str) -> Record:
    """The words of a line, and the names after `__label__`."""
    tokens = line.split()
    labels = [token.removeprefix(LABEL_PREFIX) for token in tokens if token.startswith(LABEL_PREFIX)]
    text = " ".join(token for token in tokens if not token.startswith(LABEL_PREFIX))
    return {"text": text, LABEL_PREFIX: [label for label in labels if label]}
