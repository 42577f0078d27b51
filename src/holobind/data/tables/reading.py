"""Open a table of any format, and read its texts and labels."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from holobind.data.files import OPEN_COMPRESSED, expansion_error, read_chunks, row_limit, uncompressed_name
from holobind.data.tables import columnar, folders, sources
from holobind.data.tables.layout import Fields, Layout, Record, choose_fields, choose_separator
from holobind.data.tables.lines import Lines
from holobind.data.tables.options import NO_SEPARATOR, TABLE_FORMATS, TableOptions
from holobind.data.tables.separators import LabelCounter
from holobind.data.tables.sources import NumberedRecords, Source
from holobind.errors import DataError, OptionError

SAMPLE_RECORDS = 2000  # from which the separator of labels is detected
HEAD_LINES = 20
TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl")
MAGIC = {
    columnar.PARQUET_MAGIC: "parquet",
    columnar.ARROW_FILE_MAGIC: "arrow",
    columnar.ARROW_STREAM_MAGIC: "arrow",
}


@dataclass(frozen=True)
class Table:
    """The texts and the label names of a table, and how it was read."""

    texts: list[str]
    label_names: list[list[str]]
    layout: Layout
    description: str


def find_format(path: Path, max_uncompressed: int | None = None) -> str | None:
    """The format of a table by its content and, where that leaves it open, its name; None if it is no table."""
    if path.is_dir():
        if columnar.hugging_face_files(path):
            return "arrow"
        return "annif" if folders.is_document_folder(path) else None
    chunks = read_chunks(path, max_uncompressed)
    first = next(chunks, b"")
    chunks.close()
    for magic, name in MAGIC.items():
        if first.startswith(magic):
            return name
    suffix = Path(uncompressed_name(path)).suffix
    if suffix == ".parquet":
        return "parquet"
    head = first[: 1 << 16].decode(errors="replace").removeprefix("\ufeff").split("\n")[:HEAD_LINES]
    if suffix == ".json" and "".join(head).lstrip().startswith("["):
        raise DataError(f"{path}: a JSON array; write one object a line (jq -c '.[]' does) and name it .jsonl")
    if b"\0" in first[: 1 << 16] and suffix not in TEXT_SUFFIXES:
        return None
    return sources.recognise(head, suffix)


def open_table(
    path: Path,
    format: str | None,  # noqa: A002
    options: TableOptions,
    max_uncompressed: int | None = None,
    *,
    labelled: bool = True,
    pipes: bool = False,
) -> Source:
    """A table that is ready to be read."""
    format = format or find_format(path, max_uncompressed)  # noqa: A001
    if format not in TABLE_FORMATS:
        raise OptionError(f"format {format!r} is no table; choose one of {', '.join(TABLE_FORMATS)}")
    if path.is_dir():
        if files := columnar.hugging_face_files(path):
            return columnar.from_arrow(files, path, max_uncompressed, "Hugging Face dataset")
        return folders.from_folder(path, labelled=labelled)
    if format == "parquet":
        return columnar.from_parquet(path, max_uncompressed)
    if format == "arrow":
        return columnar.from_arrow([path], path, max_uncompressed)
    lines = Lines(read_chunks(path, max_uncompressed, pipes=pipes), str(path))
    return sources.from_lines(lines, format, options, labelled=labelled)


def read_table(
    path: Path,
    format: str | None = None,  # noqa: A002
    options: TableOptions | None = None,
    max_uncompressed: int | None = None,
    *,
    like: Layout | None = None,
    labels_known: bool = False,
) -> Table:
    """Read all texts and labels of a table.

    like           the layout of the training split, which the test split shares
    labels_known   a list of the labels comes with the table, so that nothing about them is judged
    """
    rows = TableRows(path, format, options, max_uncompressed, like=like, labels_known=labels_known)
    texts: list[str] = []
    label_names: list[list[str]] = []
    for text, names in rows:
        texts.append(text)
        label_names.append(names)
    return Table(texts, label_names, rows.layout, rows.describe())


class TableRows:
    """The text and the label names of each row of a table, as it is read; the arguments are those of `read_table`.

    layout   how it is read
    """

    def __init__(
        self,
        path: Path,
        format: str | None = None,  # noqa: A002
        options: TableOptions | None = None,
        max_uncompressed: int | None = None,
        *,
        like: Layout | None = None,
        labels_known: bool = False,
    ) -> None:
        options = options or TableOptions()
        if like is not None and options.separator is None:
            options = replace(options, separator=like.separator or NO_SEPARATOR, preferred=like.fields.text)
        self._path, self._source = path, open_table(path, format, options, max_uncompressed)
        if labels_known:
            options = replace(options, separator=options.separator or self._source.separator or NO_SEPARATOR)
        self._judges_labels = options.separator is None
        compressed = path.suffix.lower() in OPEN_COMPRESSED
        self._max_rows = row_limit(path.stat().st_size, max_uncompressed) if compressed else sys.maxsize
        self.layout, self._records = arrange(self._source, options)
        self.n_rows = 0

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        counter = LabelCounter.empty()
        for number, record in self._records:
            if isinstance(record, DataError):
                raise record
            if self.n_rows >= self._max_rows:
                raise expansion_error(self._path, self._max_rows, "rows")
            try:
                row = self.layout.text_of(record), self.layout.labels_of(record)
            except DataError as error:
                raise DataError(f"{self._source.place(number)}: {error}") from error
            counter.add(row[1])
            self.n_rows += 1
            yield row
        if self._judges_labels:
            counter.check(str(self._path))

    def describe(self) -> str:
        """How the table was read, in one line."""
        return ", ".join([self.layout.describe(f"{self.n_rows:,} rows"), *self._source.notes])


def read_field(path: Path, field: str, options: TableOptions, max_uncompressed: int | None = None) -> list[str]:
    """A field of each row of a table, such as the group to which the row belongs."""
    options = replace(options, id=field)
    source = open_table(path, options.format, options, max_uncompressed, labelled=False)
    layout, records = arrange(source, options, labelled=False)
    found: list[str] = []
    for number, record in records:
        if isinstance(record, DataError):
            raise record
        value = layout.id_of(record)
        if value is None or value == "":
            raise DataError(f"{source.place(number)}: {field!r} is empty; every row needs a value there")
        found.append(str(value))
    return found


def arrange(source: Source, options: TableOptions, *, labelled: bool = True) -> tuple[Layout, NumberedRecords]:
    """How a table is to be read, and its records."""
    if source.plain:
        text, label = source.fields[-2:]
        fields = Fields(((text, 1),), label if labelled else None, "id" if "id" in source.fields else None)
    else:
        fields = choose_fields(
            source.name,
            source.fields,
            options,
            labelled=labelled,
            complete=not source.strict,
        )
    layout = Layout(source.kind, fields, source.separator, source.strict)
    records = source.records(fields.names)
    if not labelled:
        return layout, records
    sample = list(islice(records, SAMPLE_RECORDS))
    good: list[Record] = [record for _, record in sample if not isinstance(record, DataError)]
    separator = (
        source.separator
        if source.separator is not None and options.separator is None
        else choose_separator(source.name, fields, good, options)
    )
    lists = any(isinstance(record.get(fields.label or ""), list) for record in good)
    return replace(layout, separator=separator, labels_are_lists=lists), chain(sample, records)
