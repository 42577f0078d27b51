"""Read files of label texts; the suffix and the first line tell the format.

SKOS     .ttl, .nt (Turtle, N-Triples), .rdf, .xml (RDF/XML): `skos`
table    .tsv, .csv: label, then its texts, as Annif's vocabularies. With a header, the field uri, id or label names
         the label, and the fields of names, synonyms and descriptions have its texts, several with | between them
JSON     {"label": "text" or ["text", ...]}, or a list or lines of {"label": ..., "name": ..., "synonyms": [...],
         "description": ...}
lines    any other file: line i is the text of label i
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holobind.data.files import read_all, read_chunks, uncompressed_name
from holobind.data.label_texts.skos import concept_texts, turtle_triples, xml_triples
from holobind.data.tables.delimited import find_delimiter, split_rows, split_tabs
from holobind.data.tables.layout import normalised
from holobind.data.tables.lines import Lines
from holobind.data.text_files import has_lone_surrogate
from holobind.errors import DataError

KEY_FIELDS = ("uri", "id", "key", "label", "notation", "name")  # the first of these that a header has names the label
TEXT_FIELDS = (
    "name", "label", "preflabel", "title", "text", "altlabel", "synonym", "hiddenlabel", "description", "definition",
    "note", "scopenote",
)  # fmt: skip
MAX_TEXTS = 64  # of a label
MAX_TEXT_CHARACTERS = 2000  # of a text; the rest of a longer one is not read
MAX_DEPTH = 8  # of lists and objects inside each other

RawTexts = dict[str, list[str]]


@dataclass(frozen=True)
class LabelTexts:
    """Texts of labels: by name or URI, or in the order of the labels.

    The first text of a label is its name.
    """

    by_label: RawTexts | None = None
    in_order: list[list[str]] | None = None

    def __len__(self) -> int:
        return len(self.by_label if self.by_label is not None else self.in_order or ())


def read_label_texts(path: str | Path, language: str | None = None, max_uncompressed: int | None = None) -> LabelTexts:
    """The label texts of a file.

    language   of SKOS and of a table whose fields have languages, such as label_en; None: all languages
    """
    path = Path(path)
    name = uncompressed_name(path)
    if name.endswith((".ttl", ".nt", ".turtle", ".ntriples")):
        found = concept_texts(turtle_triples(_decoded(path, max_uncompressed), path), language)
    elif name.endswith((".rdf", ".xml", ".owl")):
        found = concept_texts(xml_triples(read_all(path, max_uncompressed), path), language)
    elif name.endswith(".json"):
        found = _of_json(_parsed(_decoded(path, max_uncompressed), str(path)), path)
    elif name.endswith((".jsonl", ".ndjson")):
        lines = Lines(read_chunks(path, max_uncompressed), str(path))
        found = _of_json([_parsed(line, f"{path}:{i}") for i, line in lines if line.strip()], path)
    else:
        lines = Lines(read_chunks(path, max_uncompressed), str(path))
        first = lines.peek_first() or ""
        if not name.endswith((".tsv", ".csv")) and "\t" not in first:
            texts = [[line] for _, line in lines]
            if not texts:
                raise DataError(f"{path} has no label texts")
            return LabelTexts(in_order=_checked(texts, path))
        found = _of_table(lines, first, path, language)
    if not found:
        spoken = f" in the language {language!r:.20}" if language else ""
        raise DataError(f"{path} has no label texts{spoken}; docs/label-text.md shows the formats")
    return LabelTexts(dict(zip(found, _checked(found.values(), path), strict=True)))


def as_label_texts(given: Any, language: str | None = None) -> LabelTexts:
    """Label texts as a user of Python gives them: a file, or {label: text or [text, ...]}."""
    if isinstance(given, LabelTexts):
        return given
    if isinstance(given, str | Path):
        return read_label_texts(given, language)
    if not isinstance(given, Mapping) or not given:
        raise DataError(f"label_texts are a file, or {{label: text or list of texts}}; got {type(given).__name__}")
    found = {str(label): _strings(texts, f"label_texts[{str(label)[:40]!r}]") for label, texts in given.items()}
    return LabelTexts(dict(zip(found, _checked(found.values(), "label_texts"), strict=True)))


def _decoded(path: Path, max_uncompressed: int | None) -> str:
    try:
        return read_all(path, max_uncompressed).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason})") from error


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: not JSON ({error})") from error


def _of_json(value: Any, path: Path) -> RawTexts:
    if isinstance(value, dict):
        return {label: _strings(texts, f"{path}: {label[:40]!r}") for label, texts in value.items()}
    if not isinstance(value, list):
        raise DataError(f"{path}: label texts are an object, or a list of objects; got {type(value).__name__}")
    found: RawTexts = {}
    for i, record in enumerate(value, 1):
        fields = {normalised(name): field for name, field in record.items()} if isinstance(record, dict) else {}
        key = next((name for name in KEY_FIELDS if name in fields), None)
        if key is None:
            raise DataError(f"{path}: record {i} has no field {', '.join(KEY_FIELDS)}, which names its label")
        texts = _strings({name: field for name, field in fields.items() if name != key}, f"{path}: record {i}")
        found.setdefault(bare(str(fields[key])), []).extend(texts or [str(fields[key])])
    return found


def _strings(value: Any, where: str, depth: int = 0) -> list[str]:
    """The texts of one label: a text, a list of them, or an object of names, synonyms and descriptions."""
    if depth > MAX_DEPTH:
        raise DataError(f"{where}: lists of label texts are nested more than {MAX_DEPTH} times; give one list of texts")
    match value:
        case str():
            return [value]
        case None:
            return []
        case list() | tuple() | set() | frozenset():
            return [text for each in value for text in _strings(each, where, depth + 1)]
        case dict():
            fields = {normalised(name): each for name, each in value.items()}
            wanted = [(_rank(name), name) for name in fields if _rank(name) is not None]
            return [text for _, name in sorted(wanted) for text in _strings(fields[name], where, depth + 1)]
        case _:
            raise DataError(f"{where}: a label text is a text or a list of texts; got {type(value).__name__}")


def _of_table(lines: Lines, first: str, path: Path, language: str | None) -> RawTexts:
    delimiter = find_delimiter(first)
    header = [normalised(cell.strip('"')) for cell in first.split(delimiter)]
    key, columns, rows = 0, [], split_tabs(lines)
    fields = [name for name in KEY_FIELDS[:-1] if name in header]
    if fields and any(_rank(name) is not None for name in header if name != fields[0]):
        key = header.index(fields[0])
        named = [(_rank(name), i) for i, name in enumerate(header) if i != key and _rank(name, language) is not None]
        columns = [i for _, i in sorted(named)]
        rows = split_rows(lines, delimiter)
        next(rows)
    elif uncompressed_name(path).endswith(".csv"):
        raise DataError(f"{path}: its header has no field uri, id or label; found {', '.join(header)[:100]!r}")
    found: RawTexts = {}
    for number, row in rows:
        if isinstance(row, DataError):
            raise row
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= key or not row[key].strip():
            raise DataError(f"{path}:{number}: the row has no label; expected label TAB text")
        cells = [row[i] for i in columns if i < len(row)] if columns else row[1:]
        texts = [part for cell in cells for part in (cell.split("|") if columns else [cell])]
        found.setdefault(bare(row[key].strip()), []).extend(texts)
    return found


def _rank(field: str, language: str | None = None) -> int | None:
    """The order of a field among those of texts, names first; None if it has none, or another language's."""
    stem, _, spoken = field.partition("_")
    if language and spoken and len(spoken) == 2 and spoken != language.lower()[:2]:
        return None
    bare = stem.replace("-", "")
    return next((i for i, name in enumerate(TEXT_FIELDS) if bare in (name, f"{name}s")), None)


def bare(label: str) -> str:
    """A label without the angle brackets of a URI."""
    return label.removeprefix("<").removesuffix(">") if label.startswith("<") else label


def _checked(texts: Iterable[Sequence[str]], path: object) -> list[list[str]]:
    """Texts without those that are empty or repeated, each on one line and within the limits."""
    found = []
    for of_label in texts:
        shortened = (" ".join(text[:MAX_TEXT_CHARACTERS].split()) for text in of_label)
        kept = [text for text in dict.fromkeys(shortened) if text]
        if has_lone_surrogate(kept):
            raise DataError(f"{path}: a text has half of a surrogate pair, which is no character: {kept[0]!r:.60}")
        found.append(kept[:MAX_TEXTS])
    return found
