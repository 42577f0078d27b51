"""Names of labels from a subject vocabulary, as Annif has it.

TSV   <uri> TAB name; further columns are not read
CSV   a header with `uri` and `label_en` or the like
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from holobind.data.files import read_chunks
from holobind.data.tables.delimited import find_delimiter, split_rows, split_tabs
from holobind.data.tables.layout import normalised
from holobind.data.tables.lines import Lines
from holobind.errors import DataError

VOCABULARY_FILES = ("vocabulary.tsv", "vocab.tsv", "subjects.tsv", "vocabulary.csv", "vocab.csv", "subjects.csv")


def read_vocabulary(path: Path, max_uncompressed: int | None = None) -> dict[str, str]:
    """The name of each label that the vocabulary has, by its URI."""
    lines = Lines(read_chunks(path, max_uncompressed), str(path))
    header = [normalised(cell) for cell in (lines.peek_first() or "").split(find_delimiter(lines.peek_first() or ""))]
    uri, name, rows = 0, 1, split_tabs(lines)
    if "uri" in header:
        names = [i for i, cell in enumerate(header) if cell == "label" or cell.startswith(("label_", "preflabel"))]
        if not names:
            raise DataError(f"{path}: its header has no field label_en or the like; found {', '.join(header)[:100]!r}")
        uri, name = header.index("uri"), names[0]
        rows = split_rows(lines, find_delimiter(lines.peek_first() or ""))
        next(rows)
    found: dict[str, str] = {}
    for number, row in rows:
        if isinstance(row, DataError):
            raise row
        if len(row) == 1 and not row[0].strip():
            continue
        if len(row) <= max(uri, name):
            raise DataError(f"{path}:{number}: expected <uri> TAB name, or a CSV with the fields uri and label_en")
        if row[name].strip():
            found.setdefault(row[uri].strip().removeprefix("<").removesuffix(">"), row[name].strip())
    return found


def named_labels(labels: Sequence[str], vocabulary: dict[str, str]) -> list[str]:
    """Labels with their names; a label without a name keeps its URI, and labels of one name get theirs beside it."""
    names = [vocabulary.get(label.removeprefix("<").removesuffix(">"), label) for label in labels]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name} <{label}>" for name, label in zip(names, labels, strict=True)]
