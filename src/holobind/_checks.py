"""Checks of arguments. Each raises an OptionError that names the allowed values."""

from collections.abc import Sequence

from holobind.errors import OptionError


def integer(where: str, name: str, value: int) -> int:
    """Return `value` if it is an integer; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{where}: {name} must be a whole number, got {value!r:.60}")
    return value


def positive(where: str, name: str, value: int, minimum: int = 1) -> int:
    """Return `value` if it is an integer of at least `minimum`."""
    if integer(where, name, value) < minimum:
        raise OptionError(f"{where}: {name} must be at least {minimum}, got {value}")
    return value


def one_of(where: str, name: str, value: object, allowed: Sequence[object]) -> None:
    """Check that `value` is one of the allowed values and has its type: 1 is not True."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise OptionError(f"{where}: {name} must be one of {', '.join(map(repr, allowed))}; got {value!r:.60}")
