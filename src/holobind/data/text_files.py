"""Read files of texts and of label names, one document or label set a line."""

from collections.abc import Iterable
from pathlib import Path

from holobind.data.files import MAX_LINE_BYTES, read_all
from holobind.errors import DataError


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


def has_lone_surrogate(strings: Iterable[str]) -> bool:
    """Whether a string cannot be encoded: JSON can escape half of a surrogate pair, which is no character."""
    try:
        for string in strings:
            _ = string.isascii() or string.encode()
    except UnicodeEncodeError:
        return True
    return False
