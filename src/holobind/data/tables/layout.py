"""Which fields of a table hold texts, labels and ids, and how a record becomes a text and its labels."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holobind.data.tables import separators
from holobind.data.tables.options import NO_SEPARATOR, TableOptions, TextFields
from holobind.data.text_files import has_lone_surrogate
from holobind.errors import DataError

TEXT = ("text", "texts", "document", "sentence", "utterance", "question", "query", "content", "body")
TITLE = ("title", "headline", "heading")
BODY = ("abstract", "summary", "description", "content", "body", "fulltext", "full_text")
LABELS = (
    *("labels", "label", "tags", "tag", "subjects", "subject", "subject_uris", "subject_uri", "categories", "category"),
    *("topics", "topic", "classes", "class", "keywords", "keyword", "genres", "genre", "targets", "target"),
)
IDS = ("id", "_id", "doc_id", "docid", "document_id", "uid", "identifier", "uuid")
KNOWN = frozenset((*TEXT, *TITLE, *BODY, *LABELS, *IDS))
MAX_SHOWN_FIELDS = 12
TIMES = {1: "", 2: " (twice)"}

Record = dict[str, Any]


@dataclass(frozen=True)
class Fields:
    """The fields of a table that are read."""

    text: TextFields
    label: str | None
    id: str | None

    @property
    def names(self) -> list[str]:
        found = [*(name for name, _ in self.text), self.label, self.id]
        return list(dict.fromkeys(name for name in found if name is not None))


@dataclass(frozen=True)
class Layout:
    """How the records of a table are read.

    kind        the format in words, such as "CSV"
    separator   what splits a label field that is a string; None takes it as one label
    strict      a field that is missing or is not of its type is an error, as in JSON lines; otherwise a null is empty
    """

    kind: str
    fields: Fields
    separator: str | None = None
    strict: bool = False
    labels_are_lists: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is the format that holobind writes, {"text": "...", "labels": [...]}: nothing was chosen."""
        return self.strict and self.labels_are_lists and self.fields == Fields((("text", 1),), "labels", None)

    def text_of(self, record: Record) -> str:
        """The text fields in order, each as often as it weighs, with spaces between."""
        parts: list[str] = []
        for name, weight in self.fields.text:
            value = lookup(record, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not self.strict:
                value = str(value)
            if isinstance(value, str):
                parts += [value] * weight
            elif value is not None or (self.strict and len(self.fields.text) == 1):
                raise DataError(self.expected())
        if self.strict and not parts:
            raise DataError(self.expected())
        text = " ".join(part for part in parts if part) if len(parts) > 1 else "".join(parts)
        if has_lone_surrogate([text]):
            raise DataError("it has half a surrogate pair, which is no character")
        return text

    def labels_of(self, record: Record) -> list[str]:
        """The labels of a record."""
        label = self.fields.label
        assert label is not None
        value = lookup(record, label)
        if value is None and label in ("labels", "label"):
            value = record.get("label" if label == "labels" else "labels")
        if value is None and not self.strict:
            return []
        if isinstance(value, str):
            names = [value] if self.separator is None and self.strict else separators.split(value, self.separator)
        elif isinstance(value, list | tuple):
            names = [self._item(item) for item in value]
            if self.separator not in (None, separators.LIST):
                names = [part for name in names for part in separators.split(name, self.separator)]
        else:
            names = [self._item(value)]
        if has_lone_surrogate(names):
            raise DataError("it has half a surrogate pair, which is no character")
        if broken := next((name for name in names if "\n" in name), None):
            raise DataError(f"the label {broken[:40]!r} contains a line break; rename it")
        return [sys.intern(name) for name in names]  # one string for all rows of a label

    def id_of(self, record: Record) -> Any:
        """The id of a record, as it is: a string, a number, or None."""
        value = None if self.fields.id is None else lookup(record, self.fields.id)
        if not isinstance(value, str | int | float | None) or has_lone_surrogate([str(value)]):
            raise DataError(f"the id in {self.fields.id!r} is {type(value).__name__}; it must be a string or a number")
        return value

    def _item(self, item: Any) -> str:
        if isinstance(item, dict):  # Annif: {"uri": "...", "label": "..."}
            item = next((item[key] for key in ("uri", "label", "name") if isinstance(item.get(key), str)), None)
        if isinstance(item, float) and item.is_integer() and not self.strict:  # whole numbers beside nulls
            item = int(item)
        if not isinstance(item, str | int):
            raise DataError(self.expected())
        return str(item)

    def expected(self) -> str:
        text = ", ".join(f'"{name}": "..."' for name, _ in self.fields.text)
        label = "" if self.fields.label is None else f', "{self.fields.label}": ["...", "..."]'
        return f"expected {{{text}{label}}}"

    def describe(self, rows: str = "") -> str:
        """One line: format, number of rows, fields and separator."""
        text = " and ".join(f"{name!r}{TIMES.get(n, f' ({n} times)')}" for name, n in self.fields.text)
        parts = [rows, f"text in {text}"]
        if self.fields.label is not None:
            how = (
                "in lists"
                if self.labels_are_lists or self.separator == separators.LIST
                else "one a row"
                if self.separator is None
                else "separated by white space"
                if self.separator == separators.WHITE_SPACE
                else f"separated by {self.separator!r}"
            )
            parts += [f"labels in {self.fields.label!r}", how]
        if self.fields.id is not None:
            parts.append(f"ids in {self.fields.id!r}")
        return f"{self.kind}: " + ", ".join(part for part in parts if part)


def lookup(record: Record, name: str) -> Any:
    """A field of a record; `a.b` is the field b of the object in a, where no field has that name."""
    if name in record or "." not in name:
        return record.get(name)
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def normalised(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def choose_fields(
    source: str,
    available: Sequence[str],
    options: TableOptions,
    *,
    labelled: bool = True,
    complete: bool = True,
) -> Fields:
    """Choose the fields of a table: those that the caller names, or those with the usual names.

    labelled   labels are wanted
    complete   whether `available` are all fields; those of JSON lines may come later
    """
    by_name: dict[str, str] = {}
    for name in available:
        by_name.setdefault(normalised(name), name)

    def known(names: Sequence[str]) -> list[str]:
        return [by_name[name] for name in names if name in by_name]

    def given(name: str) -> str:
        exact = name in available or (name.partition(".")[0] in available)
        if not exact and normalised(name) not in by_name and complete:
            raise DataError(f"{source}: it has no field {name[:40]!r}; its fields are {shown(available)}")
        return name if exact else by_name.get(normalised(name), name)

    label = given(options.label) if options.label is not None else next(iter(known(LABELS)), None)
    id_ = given(options.id) if options.id is not None else next(iter(known(IDS)), None)
    text: TextFields | None = None
    if options.text is not None:
        text = tuple((given(name), weight) for name, weight in options.text)
    elif options.preferred is not None and all(normalised(name) in by_name for name, _ in options.preferred):
        text = tuple((by_name[normalised(name)], weight) for name, weight in options.preferred)
    elif "text" not in by_name and known(TITLE) and known(BODY):
        text = tuple((name, 1) for name in dict.fromkeys(known(TITLE)[:1] + known(BODY)))
    elif names := known((*TEXT, *TITLE, *BODY)):
        text = ((names[0], 1),)
    taken = {name for name, _ in text or ()}
    rest = [name for name in available if name not in taken and name not in (label, id_)]
    if text is None:
        if len(rest) != 1 or not (labelled or complete):
            raise _which(source, "texts", "--text-field", available)
        text, rest = ((rest[0], 1),), []
    if labelled and label is None:
        if len(rest) != 1:
            raise _which(source, "labels", "--label-field", available)
        label = rest[0]
    return Fields(text, label if labelled else None, id_)


def choose_separator(source: str, fields: Fields, sample: Sequence[Record], options: TableOptions) -> str | None:
    """What separates the labels of a field, as the caller says or as a sample of the records shows."""
    if options.separator is not None:
        return None if options.separator == NO_SEPARATOR else options.separator
    values = [lookup(record, fields.label or "") for record in sample]
    where = f"{source}: the field {fields.label!r}"
    lists = [[str(item) for item in value] for value in values if isinstance(value, list | tuple)]
    if lists:
        separators.check_single_items(lists, where)
        return None
    return separators.find_separator([value for value in values if isinstance(value, str)], where)


def shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN_FIELDS} more" if len(names) > MAX_SHOWN_FIELDS else ""
    return ", ".join(repr(name[:30]) for name in names[:MAX_SHOWN_FIELDS]) + more


def _which(source: str, what: str, option: str, available: Sequence[str]) -> DataError:
    return DataError(f"{source}: which of its fields {shown(available)} holds the {what}? pass {option} NAME")
