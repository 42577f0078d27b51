"""What values an option takes: a description, and a test of a value that is not None."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from holobind._checks import MAX_SEED, excerpt
from holobind.errors import OptionError

TrainableVector = Literal["present", "missing", "labels"]
METRICS = ("P", "nDCG", "R")  # each with a @k
MIN_MEMORY = 256 * 10**6  # bytes; Python with torch takes as many
MAX_SIZE = 2**28  # the number of bytes of a layer between two such sizes fits in 64 bits


@dataclass(frozen=True)
class AllowedValues:
    """The values an option allows.

    allowed   the values in words, for help and error messages
    type      the type of the option on the command line
    holds     whether a value is allowed
    """

    allowed: str
    type: type
    holds: Callable[[Any], bool]


def _is_number(value: Any, kind: Any = int | float) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return abs(value) <= MAX_SEED if isinstance(value, int) else math.isfinite(value)


def choice(names: Any) -> AllowedValues:
    allowed = get_args(names)
    return AllowedValues(f"one of {', '.join(allowed)}", str, lambda value: isinstance(value, str) and value in allowed)


def integer(minimum: int, maximum: int = MAX_SIZE) -> AllowedValues:
    shown = f"2^{maximum.bit_length() - 1}" if maximum >= 1000 and maximum.bit_count() == 1 else f"{maximum:,}"
    allowed = f"a whole number from {minimum} to {shown}"
    return AllowedValues(allowed, int, lambda value: _is_number(value, int) and minimum <= value <= maximum)


def number(minimum: float, maximum: float = math.inf) -> AllowedValues:
    allowed = f"a number from {minimum:g}" + (f" to {maximum:g}" if maximum < math.inf else "")
    return AllowedValues(allowed, float, lambda value: _is_number(value) and minimum <= value <= maximum)


POSITIVE = AllowedValues("a positive number", float, lambda value: _is_number(value) and value > 0)
FRACTION = AllowedValues("a fraction from 0 to below 1", float, lambda value: _is_number(value) and 0 <= value < 1)
FLAG = AllowedValues("True or False", bool, lambda value: isinstance(value, bool))
ENCODER = AllowedValues(
    "the name or the path of a sentence encoder",
    str,
    lambda value: isinstance(value, str | Path) and bool(str(value).strip()),
)
FILE = AllowedValues("the path of a file", Path, lambda value: isinstance(value, str | Path))
SIZES = AllowedValues(
    "at least one size, such as (512,), each at most 2^28",
    tuple,
    lambda value: (
        isinstance(value, Sequence) and len(value) > 0 and all(_is_number(n, int) and 0 < n <= MAX_SIZE for n in value)
    ),
)
VECTORS = AllowedValues(
    f"some of {', '.join(get_args(TrainableVector))}",
    tuple,
    lambda value: (
        isinstance(value, Sequence) and not isinstance(value, str) and set(value) <= {*get_args(TrainableVector)}
    ),
)
MEMORY = AllowedValues(
    "a number of bytes from 256MB on with its unit, such as 2GB or 512MB",
    str,
    lambda value: isinstance(value, str) and (parse_bytes(value) or 0) >= MIN_MEMORY,
)
METRIC = AllowedValues(
    f"{', '.join(f'{name}@k' for name in METRICS)} with k from 1 to 999,999,999",
    str,
    lambda value: isinstance(value, str) and _is_metric(value),
)


def parse_bytes(text: str) -> int | None:
    """Bytes from a number with a unit, kB to TB as powers of 1000; None if it is none."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([kMGT])i?B", text.strip(), re.ASCII)
    return None if found is None else int(float(found[1]) * 1000 ** ("kMGT".index(found[2]) + 1))


def _is_metric(value: str) -> bool:
    name, _, k = value.partition("@")
    return name in METRICS and k.isdecimal() and len(k) < 10 and int(k) >= 1


def option(default: Any, values: AllowedValues, group: str, help: str, shown: str | None = None) -> Any:  # noqa: A002
    """A field of a config.

    shown   the default in words, where None stands for a choice by the data or the network
    """
    return field(default=default, metadata={"values": values, "group": group, "help": help, "shown": shown})


def check_options(config: Any) -> None:
    """Raise an OptionError for the first option of a config that has a value it does not allow."""
    for one in fields(config):
        value, values = getattr(config, one.name), one.metadata["values"]
        if (value is None and one.default is not None) or not (value is None or values.holds(value)):
            unset = ", or None to have it chosen" if one.default is None else ""
            raise OptionError(f"{one.name} must be {values.allowed}{unset}; got {excerpt(value)}")
