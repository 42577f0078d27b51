"""Which character stands between the labels of a field, and signs that labels are misread.

A `|`, or a `;` in more than a few rows, separates labels. Names have commas of their own ("Paris, France"), so commas
separate labels only where the values show it; where they may or may not, the caller is asked.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holobind.errors import DataError

LIST = "a list"  # the separator of fields like ["a", "b"], which no character is
WHITE_SPACE = " "
MIN_SEPARATED = 0.02  # of the rows, so that a character is more than an accident
MIN_LONG = 0.05  # of the rows with a comma, which have three parts or more
MIN_REPEATED = 0.8  # of the parts between commas, which occur in several values
MIN_ALONE = 0.6  # of the words of values with spaces, which are values themselves
NEARLY_ALL = 0.9  # of the labels that occur once
MIN_ROWS = 20  # for a judgement about labels that occur once
MAX_LABELS_PER_ROW = 1.05
URI = re.compile(r"<?[a-zA-Z][a-zA-Z0-9+.-]*:[^\s<>]+>?")
BETWEEN_ITEMS = re.compile(r"[\s,]*")
LIST_ITEM = re.compile(r"""(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([\w.:/#+-]+))""")
HINT = "pass --label-separator '{}' if it separates labels, or --label-separator none if it is part of their names"


def split(value: str, separator: str | None) -> list[str]:
    """The labels of a field, without spaces around them and without empty ones."""
    if separator is None:
        return [value.strip()] if value.strip() else []
    if separator == LIST:
        return _list_items(value)
    if separator == WHITE_SPACE:
        return [_plain_uri(part) for part in value.split()]
    return [part for part in map(str.strip, value.split(separator)) if part]


def find_separator(values: Sequence[str], where: str) -> str | None:
    """What separates the labels of these fields; None if each has one label.

    where   names the file and the field in the error that asks the caller
    """
    values = [value for value in map(str.strip, values) if value]
    if not values:
        return None
    if all(value.startswith("[") and value.endswith("]") for value in values):
        return LIST
    if any("\n" in value for value in values):
        return "\n"
    if all(URI.fullmatch(part) for value in values for part in value.split()):
        return WHITE_SPACE
    if any("|" in value for value in values):
        return "|"
    for separator in (";", "\t"):
        if sum(separator in value for value in values) >= MIN_SEPARATED * len(values):
            return separator
    commas = _judge_commas(values, where)
    if commas is None:
        _judge_spaces(values, where)
    return commas


def _judge_commas(values: list[str], where: str) -> str | None:
    """Whether commas separate labels: they do where parts recur in many values, some of which have three or more."""
    with_comma = [value for value in values if "," in value]
    if len(with_comma) < MIN_SEPARATED * len(values):
        return None
    rows = [split(value, ",") for value in with_comma]
    wholes = set(values)
    found_in = Counter(part for value in wholes for part in set(split(value, ",")))
    parts = [part for row in rows for part in row]
    if not parts:
        return None
    repeated = sum(found_in[part] > 1 for part in parts) / len(parts)
    alone = sum(part in wholes for part in parts) / len(parts)
    long = sum(len(row) > 2 for row in rows) / len(rows)
    if repeated >= MIN_REPEATED and (long >= MIN_LONG or alone >= MIN_REPEATED):
        return ","
    once = len(wholes) > NEARLY_ALL * len(values) and len(values) >= MIN_ROWS
    if repeated > 1 - MIN_REPEATED or alone > 1 - MIN_REPEATED or once or long >= MIN_LONG:
        example = max(with_comma[:100], key=lambda value: (value.count(","), -len(value)))
        raise DataError(f"{where} has commas, as in {example[:60]!r}: {HINT.format(',')}")
    return None


def _judge_spaces(values: list[str], where: str) -> None:
    """Ask where most words of the values are values themselves, and there are more values than words."""
    wholes = set(values)
    words = [word for value in values if " " in value for word in value.split()]
    if len(values) < MIN_ROWS or len(words) < 2 * MIN_SEPARATED * len(values) or len(wholes) <= len(set(words)):
        return
    if sum(word in wholes for word in words) >= MIN_ALONE * len(words):
        example = next(value for value in values if " " in value)
        raise DataError(f"{where} has spaces, as in {example[:60]!r}: {HINT.format(WHITE_SPACE)}")


@dataclass
class LabelCounter:
    """Counts the labels of a table, to notice that they are misread."""

    counts: Counter[str]
    n_rows: int = 0

    @classmethod
    def empty(cls) -> "LabelCounter":
        return cls(Counter())

    def add(self, labels: Iterable[str]) -> None:
        self.counts.update(labels)
        self.n_rows += 1

    def check(self, where: str) -> None:
        """Stop where nearly every row has one label, which no other row has: no model learns from these."""
        total, once = self.counts.total(), sum(n == 1 for n in self.counts.values())
        if self.n_rows < MIN_ROWS or total > MAX_LABELS_PER_ROW * self.n_rows or once < NEARLY_ALL * max(total, 1):
            return
        raise DataError(
            f"{where}: {once:,} of its {total:,} labels occur once, at {total / self.n_rows:.2f} labels a row, like "
            f"{next(iter(self.counts))[:60]!r}; pass --label-separator ' ' or another character if a field has several "
            f"labels, --label-field if labels are elsewhere, or --label-separator none if they are right"
        )


def check_single_items(values: Sequence[Sequence[str]], where: str) -> None:
    """Stop where every row has a list of one label, and that has a `|` in it."""
    joined = next((row[0] for row in values if len(row) == 1 and "|" in row[0]), None)
    if joined is not None and all(len(row) <= 1 for row in values):
        raise DataError(f"{where} has lists of one label, like {joined[:60]!r}: {HINT.format('|')}")


def _list_items(value: str) -> list[str]:
    """The items of ["a", "b"] as JSON, Python and numpy write it, without evaluating anything."""
    try:
        items = json.loads(value)
        if isinstance(items, list) and all(isinstance(item, str | int) for item in items):
            return [text for item in items if (text := str(item).strip())]
    except (ValueError, RecursionError):
        pass
    found, at, inside = [], 0, value.strip()[1:-1]
    while (at := _after(BETWEEN_ITEMS, inside, at)) < len(inside):
        item = LIST_ITEM.match(inside, at)
        if item is None:
            raise DataError(f"{value[:60]!r} is not a list of labels")
        quoted = item[1] if item[1] is not None else item[2]
        found.append(item[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = item.end()
    return [label for label in map(str.strip, found) if label]


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _plain_uri(part: str) -> str:
    return part[1:-1] if part.startswith("<") and part.endswith(">") else part
