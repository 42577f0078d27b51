"""Rows of delimited text: RFC 4180 with any delimiter, and plain tab-separated lines.

A field that begins with a quote ends at the next quote that is not doubled; line breaks and delimiters inside belong to
it. A quote elsewhere in a field is a character like any other.
"""

from collections.abc import Iterator

from holobind.data import files
from holobind.data.tables.lines import Lines
from holobind.errors import DataError

DELIMITERS = (",", "\t", ";", "|")
MAX_FIELDS = 10_000
QUOTE = '"'

Row = tuple[int, list[str] | DataError]


def split_rows(lines: Lines, delimiter: str) -> Iterator[Row]:
    """Yield the number of its first line and the fields of each row; an error where a row is not valid.

    Empty lines are skipped. A quote that is never closed ends the rows: rows after it cannot be separated.
    """
    for number, first in lines:
        line = first
        if not line:
            continue
        if "\0" in line:
            yield number, DataError(f"{lines.name}:{number}: it has a NUL byte; is this a text file?")
            continue
        if QUOTE not in line:
            fields: list[str] | DataError = line.split(delimiter)
        else:
            line = _whole_row(lines, number, line, delimiter)
            fields = _quoted_fields(lines.name, number, line, delimiter)
        if len(fields) > MAX_FIELDS if isinstance(fields, list) else False:
            fields = DataError(f"{lines.name}:{number}: the row has more than {MAX_FIELDS:,} fields")
        yield number, fields


def split_tabs(lines: Lines) -> Iterator[Row]:
    """Yield the number and the fields of each line, separated by tabs; a quote means nothing."""
    for number, line in lines:
        yield number, line.split("\t")


def find_delimiter(header: str) -> str:
    """The delimiter that occurs most often in a header, outside of quotes; a comma if there is none."""
    outside = "".join(header.split(QUOTE)[::2])
    return max(DELIMITERS, key=outside.count)


def _whole_row(lines: Lines, number: int, line: str, delimiter: str) -> str:
    """A row with the lines that a quoted field continues on."""
    pieces, size = [line], len(line)
    inside = _ends_inside_quotes(line, delimiter, inside=False)
    while inside:
        following = next(lines, None)
        if following is None or size > files.MAX_LINE_BYTES:
            raise DataError(
                f"{lines.name}:{number}: a quote that is opened in this row is never closed; double the quotes that "
                f"belong to a text, or pass --format tsv if quotes mean nothing in this file"
            )
        if "\0" in following[1]:
            raise DataError(f"{lines.name}:{following[0]}: it has a NUL byte; is this a text file?")
        pieces.append(following[1])
        size += len(following[1]) + 1
        inside = _ends_inside_quotes(following[1], delimiter, inside=True)
    return "\n".join(pieces)


def _ends_inside_quotes(line: str, delimiter: str, *, inside: bool) -> bool:
    """Whether a quoted field goes on after this line."""
    at = 0
    while True:
        if not inside:
            if line.startswith(QUOTE, at):
                inside, at = True, at + 1
            else:
                at = line.find(delimiter, at) + 1
                if not at:
                    return False
            continue
        at = line.find(QUOTE, at)
        if at < 0:
            return True
        if line.startswith(QUOTE, at + 1):
            at += 2
            continue
        inside = False
        at = line.find(delimiter, at) + 1
        if not at:
            return False


def _quoted_fields(name: str, number: int, row: str, delimiter: str) -> list[str] | DataError:
    fields: list[str] = []
    at = 0
    while True:
        if row.startswith(QUOTE, at):
            end = at + 1
            while (end := row.find(QUOTE, end)) >= 0 and row.startswith(QUOTE, end + 1):
                end += 2
            after = row[end + 1 : end + 2]
            if after not in ("", delimiter):
                return DataError(
                    f"{name}:{number}: field {len(fields) + 1} goes on after its closing quote, "
                    f"{row[end : end + 20]!r}; double the quotes that belong to a text"
                )
            fields.append(row[at + 1 : end].replace(QUOTE * 2, QUOTE))
            if not after:
                return fields
            at = end + 2
        else:
            end = row.find(delimiter, at)
            fields.append(row[at:] if end < 0 else row[at:end])
            if end < 0:
                return fields
            at = end + 1
