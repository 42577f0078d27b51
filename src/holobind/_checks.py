"""Checks of arguments. Each raises an OptionError that names the allowed values, or for names a DataError."""

import os
import sys
from collections.abc import Sequence
from functools import cache

from holobind.errors import DataError, OptionError

MAX_SEED = 2**62  # seeds must fit in 64 bits, also those that are made by adding to one


def integer(where: str, name: str, value: int) -> int:
    """Return `value` if it is an integer; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{where}: {name} must be a whole number, got {excerpt(value)}")
    return value


def positive(where: str, name: str, value: int, minimum: int = 1) -> int:
    """Return `value` if it is an integer of at least `minimum`."""
    if integer(where, name, value) < minimum:
        raise OptionError(f"{where}: {name} must be at least {minimum}, got {excerpt(value)}")
    return value


def one_of(where: str, name: str, value: object, allowed: Sequence[object]) -> None:
    """Check that `value` is one of the allowed values and has its type: 1 is not True."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise OptionError(f"{where}: {name} must be one of {', '.join(map(repr, allowed))}; got {excerpt(value)}")


def shape_text(*sizes: int | str) -> str:
    """A shape for a message: `(2, 3, m)`, where m stands for any size."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def check_names(names: Sequence[str]) -> None:
    """Check that names, as of labels, can be stored as lines of text."""
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"the name {name!r:.60} is not a string; rename it")
        if "\n" in name:
            raise DataError(f"the name {name!r:.60} contains a line break, which no file can store; rename it")
        try:
            _ = name.isascii() or name.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the name {name!r:.60} has half a surrogate pair; rename it") from error


def seed(where: str, value: int) -> int:
    """Return `value` if it is an integer that random generators take."""
    if abs(integer(where, "seed", value)) > MAX_SEED:
        raise OptionError(f"{where}: seed must be a whole number of at most {MAX_SEED}, got {excerpt(value)}")
    return value


def fits_memory(what: str, n_bytes: int, advice: str) -> None:
    """Refuse to make what takes more bytes than this machine has."""
    if n_bytes > (limit := _memory_bytes()):
        needed = min(n_bytes, 10**30) / 1e9  # larger whole numbers may not be floats
        raise OptionError(f"{what} take {needed:,.4g} GB or more, and this machine has {limit / 1e9:,.4g} GB; {advice}")


def excerpt(value: object) -> str:
    """The beginning of `repr(value)`. Python prints no whole number of more than 4,300 digits."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return f"a {type(value).__name__} too long to print"


def printable(text: str, max_characters: int = 1000) -> str:
    """The beginning of a text in one line: a space for white space, an escape for a control character."""
    line = " ".join(text[: 2 * max_characters].split())
    if len(line) > max_characters or len(text) > 2 * max_characters:
        line = f"{line[:max_characters]}..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


@cache
def _memory_bytes() -> int:
    """The memory of this machine, or what this process may have of it."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)
