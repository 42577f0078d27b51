"""Folders with one document a file, as Annif has them: `a.txt` with its subjects in `a.tsv` or `a.key`.

a.tsv   a subject a line: <uri> TAB name. The URI is the label.
a.key   a subject a line: its name
"""

from collections.abc import Sequence
from pathlib import Path

from holobind.data.files import check_is_file
from holobind.data.tables.sources import NumberedRecords, Source
from holobind.data.text_files import read_lines
from holobind.errors import DataError

SUBJECT_SUFFIXES = (".tsv", ".key")


def is_document_folder(folder: Path) -> bool:
    """Whether a text of the folder has a file of subjects."""
    return any(_subject_file(file) is not None for file in _documents(folder))


def from_folder(folder: Path, *, labelled: bool = True) -> Source:
    """The documents of a folder. Where labels are wanted, documents without a file of subjects are left out."""
    documents = _documents(folder)
    if not documents:
        raise DataError(f"{folder}: it has no .txt files")
    pairs = [(file, _subject_file(file)) for file in documents]
    chosen = [(file, subjects) for file, subjects in pairs if subjects is not None or not labelled]

    def records(_: Sequence[str]) -> NumberedRecords:
        for number, (file, subjects) in enumerate(chosen, 1):
            text = "\n".join(read_lines(file))
            labels = [] if subjects is None or not labelled else _subjects(subjects)
            yield number, {"id": file.stem, "text": text, "subjects": labels}

    source = Source(str(folder), "Annif's folder of texts", ["id", "text", "subjects"], records, plain=True)
    if len(chosen) < len(pairs):
        source.notes.append(f"{len(pairs) - len(chosen):,} texts without subjects left out")
    return source


def _documents(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.txt") if not file.name.startswith("."))


def _subject_file(document: Path) -> Path | None:
    return next((file for end in SUBJECT_SUFFIXES if (file := document.with_suffix(end)).is_file()), None)


def _subjects(path: Path) -> list[str]:
    check_is_file(path)
    lines = [line.strip() for line in read_lines(path) if line.strip()]
    if path.suffix == ".key":
        return lines
    first = [line.split("\t")[0].strip() for line in lines]
    return [uri[1:-1] if uri.startswith("<") and uri.endswith(">") else uri for uri in first]
