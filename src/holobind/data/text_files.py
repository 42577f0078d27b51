"""Read files of texts and label names: lines, tab-separated values, and JSON lines."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from holobind.data.files import MAX_LINE_BYTES, read_all
from holobind.errors import DataError

TextsAndNames = tuple[list[str], list[list[str]]]


def read_lines(path: Path, max_uncompressed: int | None = None) -> list[str]:
    """The lines of a UTF-8 text. Only a line feed ends a line, because documents may contain other line separators."""
    text = read_all(path, max_uncompressed)
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not UTF-8 text ({error.reason})") from error
    lines = [line.removesuffix("\r") for line in decoded.removesuffix("\n").split("\n")] if decoded else []
    number = next((i for i, content in enumerate(lines, 1) if len(content) > MAX_LINE_BYTES), None)
    if number is not None:
        raise DataError(f"{path}:{number}: the line has more than {MAX_LINE_BYTES} bytes; is this the right file?")
    return lines


def read_label_names(path: Path, max_uncompressed: int | None = None) -> list[list[str]]:
    """The label names of each line, separated by tabs, or by spaces in a file without tabs."""
    lines = read_lines(path, max_uncompressed)
    separator = "\t" if any("\t" in line for line in lines) else " "
    return [[name for name in line.split(separator) if name] for line in lines]


def read_tsv(path: Path, max_uncompressed: int | None = None) -> TextsAndNames:
    """The texts and the label names of each line `text TAB label TAB label`."""
    texts, label_names = [], []
    for number, line in enumerate(read_lines(path, max_uncompressed)):
        text, *names = line.split("\t")
        if number or [text.lower(), *map(str.lower, names)] not in (["text", "labels"], ["text", "label"]):
            texts.append(text)
            label_names.append([sys.intern(name) for name in names if name])
    return texts, label_names


def read_jsonl(path: Path, max_uncompressed: int | None = None) -> TextsAndNames:
    """The texts and the label names of each line `{"text": "...", "labels": ["...", "..."]}`."""
    texts, label_names = [], []
    for number, line in enumerate(read_lines(path, max_uncompressed), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not JSON ({error})") from error
        text = record.get("text") if isinstance(record, dict) else None
        labels = record.get("labels", record.get("label")) if isinstance(record, dict) else None
        labels = [labels] if isinstance(labels, str | int) else labels
        if (
            not isinstance(text, str)
            or not isinstance(labels, list)
            or not all(isinstance(x, str | int) for x in labels)
        ):
            raise DataError(f'{path}:{number}: expected {{"text": "...", "labels": ["...", "..."]}}')
        names = [sys.intern(str(label)) for label in labels]
        if has_lone_surrogate([text, *names]):
            raise DataError(f"{path}:{number}: it has half a surrogate pair, which is no character")
        if broken := next((name for name in names if "\n" in name), None):
            raise DataError(f"{path}:{number}: the label {broken[:40]!r} contains a line break; rename it")
        texts.append(text)
        label_names.append(names)
    return texts, label_names


def has_lone_surrogate(strings: Iterable[str]) -> bool:
    """Whether a string cannot be encoded: JSON can escape half of a surrogate pair, which is no character."""
    try:
        for string in strings:
            _ = string.isascii() or string.encode()
    except UnicodeEncodeError:
        return True
    return False
