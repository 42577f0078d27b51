"""The options of a table: its format, and which of its fields hold texts, labels and ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holobind.errors import OptionError

TABLE_FORMATS = ("csv", "tsv", "jsonl", "annif", "fasttext", "parquet", "arrow")
NO_SEPARATOR = "none"
MAX_FIELD_WEIGHT = 9
MAX_TEXT_FIELDS = 20
ESCAPES = {"\\t": "\t", "\\n": "\n", "space": " "}

TextFields = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TableOptions:
    """What a caller says about a table; None leaves it to the content.

    format      one of `TABLE_FORMATS`
    text        fields that make up the text, in order, and how often each is repeated
    label       field of the labels
    separator   what stands between the labels of one field; " " for any white space; "none" for one label a field
    id          field that is passed through to predictions
    preferred   text fields that are taken where the table has all of them, as a model remembers them
    """

    format: str | None = None
    text: TextFields | None = None
    label: str | None = None
    separator: str | None = None
    id: str | None = None
    preferred: TextFields | None = None

    @classmethod
    def of(
        cls,
        *,
        format: str | None = None,  # noqa: A002 the name of the option
        text_field: str | Sequence[str] | None = None,
        label_field: str | None = None,
        label_separator: str | None = None,
        id_field: str | None = None,
        preferred: Any = None,
    ) -> "TableOptions":
        """The options as a user writes them, such as text_field="title^2,abstract"."""
        if label_separator == "":
            raise OptionError("--label-separator is empty; give a character like '|', or none for one label a field")
        separator = None if label_separator is None else ESCAPES.get(label_separator, label_separator)
        text = _text_fields(text_field)
        return cls(format, text, label_field, separator, id_field, _remembered(preferred))

    @property
    def names(self) -> list[str]:
        """All fields that were named."""
        text = [name for name, _ in self.text or ()]
        return [*text, *(name for name in (self.label, self.id) if name is not None)]

    @property
    def numbered(self) -> bool:
        """Whether the fields are numbers of columns, as of a file without a header."""
        return bool(self.names) and all(name.isdecimal() for name in self.names)


def _text_fields(given: str | Sequence[str] | None) -> TextFields | None:
    """Fields and their weights from "title^2,abstract", or from a list of such names."""
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else [str(part) for part in given]
    found = []
    for part in (part.strip() for part in parts):
        name, mark, weight = part.rpartition("^")
        if not mark or not name:
            name, weight = part, "1"
        if not name or len(weight) != 1 or weight not in "123456789":
            raise OptionError(
                f"--text-field wants fields with commas between them, and ^2 to ^{MAX_FIELD_WEIGHT} after a field that "
                f"weighs more, such as title^2,abstract; got {str(given)[:60]!r}"
            )
        found.append((name, int(weight)))
    if not found or len(found) > MAX_TEXT_FIELDS:
        raise OptionError(f"--text-field takes 1 to {MAX_TEXT_FIELDS} fields; got {len(found)}")
    return tuple(found)


def _remembered(value: Any) -> TextFields | None:
    """The text fields that a model file remembers, if they are valid."""
    valid = (
        isinstance(value, list | tuple)
        and 0 < len(value) <= MAX_TEXT_FIELDS
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
        and all(isinstance(name, str) and type(n) is int and 1 <= n <= MAX_FIELD_WEIGHT for name, n in value)
    )
    return tuple((name, n) for name, n in value) if valid else None
