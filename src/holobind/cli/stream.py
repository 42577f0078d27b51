"""Labels for a stream of lines: in order, in constant memory, and as soon as the lines are there.

    text    a text a line, for models that were trained on texts
    jsonl   {"text": "..."} or {"features": {"12": 0.5, "40": 1}} a line
    xml     `f:v f:v` or `l1,l2 f:v f:v` a line, as in XML-Repository files; labels are passed over, and so is a first
            line `points features labels`

A batch is what one read gives. A file gives full ones; someone who types, or a slow pipe, gets each answer at once.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from holobind._types import CsrArray
from holobind.data.csr import from_arrays
from holobind.data.sparse_text import BOM, BROKEN, HEADER, LONGEST_LINE, features, opened
from holobind.errors import DataError, OptionError
from holobind.model import Model

FORMATS = ("text", "jsonl", "xml")
NUMBER = rb"\d+:[-+.\deE]+"
FEATURES = re.compile(rb"([\d,]+[ \t]+|[ \t]*)%b([ \t]+%b)*[ \t]*" % (NUMBER, NUMBER))  # XML-Repository data
BATCH = 1024
CHUNK = 1 << 20
STDIN = "stdin"

Answer = dict[str, Any]
Features = dict[int, float]


def chunks(path: Path | None) -> Iterator[bytes]:
    """The bytes of a file, unpacked where its name says that it is packed, or of standard input, as they arrive."""
    if path is None:
        while piece := sys.stdin.buffer.read1(CHUNK):  # type: ignore[union-attr]
            yield piece
        return
    with opened(path) as (stream, _):
        take = getattr(stream, "read1", stream.read)  # a file without buffer gives what one read gives, too
        try:
            while piece := take(CHUNK):
                yield piece
        except BROKEN as error:
            raise DataError(f"{path}: the {path.suffix} data is damaged or ends too early ({error})") from error


def answers(
    model: Model,
    pieces: Iterable[bytes],
    k: int = 5,
    *,
    form: str | None = None,
    where: str = STDIN,
    names: bool = True,
    threshold: float = -math.inf,
    on_bad: Callable[[DataError], None] | None = None,
) -> Iterator[list[Answer]]:
    """The answers to each batch, one for each line: {"labels": [{"label": "red", "score": 0.9}, ...]}, best first.

    form       one of `FORMATS`; None tells it from the model and the first line
    names      say labels by name where the model has names, not by number
    threshold  leave out labels with scores not above it
    on_bad     gets the error of a line that cannot be read, which then has the answer {"error": "..."}; without it
               the error is raised, after the answers to all lines before
    """
    if form not in (None, *FORMATS):
        raise OptionError(f"format {form!r} is unknown; choose one of {', '.join(FORMATS)}")
    reading: _Reading | None = None
    for number, lines in _batches(pieces, where):
        skipped = 0
        if reading is None:
            lines[0] = lines[0].removeprefix(BOM)
            reading = _Reading(model, form or _told(model, lines[0]), where)
            skipped = int(reading.is_header(lines[0]))
        found: list[Answer] = []
        for inputs in reading.read(lines[skipped:], number + skipped):
            if isinstance(inputs, DataError):
                if on_bad is None:
                    yield found
                    raise inputs
                on_bad(inputs)
                found.append({"error": str(inputs)})
            else:
                found += _labelled(model, inputs, k, names, threshold)
        yield found


def _batches(pieces: Iterable[bytes], where: str) -> Iterator[tuple[int, list[bytes]]]:
    """Lines without their ends, and the number of the first."""
    number, rest, held = 1, [b""], 0
    for piece in pieces:
        *whole, last = piece.split(b"\n")
        if whole:
            whole[0] = b"".join([*rest, whole[0]])
            rest, held = [], 0
        rest.append(last)
        held += len(last)
        if held > LONGEST_LINE:
            raise DataError(f"{where}:{number}: a line of more than {LONGEST_LINE} bytes; is this the right file?")
        for first in range(0, len(whole), BATCH):
            yield number + first, [line.removesuffix(b"\r") for line in whole[first : first + BATCH]]
        number += len(whole)
    if any(rest):
        yield number, [b"".join(rest)]


def _told(model: Model, line: bytes) -> str:
    if line.lstrip().startswith(b"{"):
        return "jsonl"
    return "text" if model.reads_texts and not HEADER.fullmatch(line) and not FEATURES.fullmatch(line) else "xml"


class _Reading:
    """How the lines of one stream become inputs of a model."""

    def __init__(self, model: Model, form: str, where: str) -> None:
        self.form, self.where, self.texts = form, where, model.reads_texts
        self.n_features = getattr(model.network, "n_features", 0)
        if form == "text" and not self.texts:
            raise OptionError(f"this model reads {self.n_features} features, not texts; give it jsonl or xml")
        if form == "xml" and not self.n_features:
            raise OptionError("this model reads texts, not features; give it text or jsonl")

    def is_header(self, line: bytes) -> bool:
        found = HEADER.fullmatch(line) if self.form == "xml" else None
        if found and int(found[2]) != self.n_features:
            hint = ", which it makes of texts: give it those" if self.texts else ""
            raise DataError(
                f"{self.where}:1: the header says {int(found[2])} features; this model reads {self.n_features}{hint}"
            )
        return found is not None

    def read(self, lines: list[bytes], number: int) -> Iterator[list[str] | CsrArray | DataError]:
        """Inputs of as many lines as possible at a time, or the mistake of one."""
        if self.form == "xml":
            yield from self._sparse(lines, number)
            return
        parse = self._record if self.form == "jsonl" else self._text
        parsed = (parse(line, number + i) for i, line in enumerate(lines))
        for kind, some in groupby(parsed, type):
            if kind is str:
                yield list(some)  # type: ignore[arg-type]
            elif kind is dict:
                yield _rows(list(some), self.n_features)  # type: ignore[arg-type]
            else:
                yield from some  # type: ignore[misc]

    def _sparse(self, lines: list[bytes], number: int) -> Iterator[CsrArray | DataError]:
        """All lines at once; if one of them is wrong, the halves."""
        try:
            found = features(lines, self.n_features, self.where, number) if lines else None
        except DataError as error:
            half = len(lines) // 2
            if not half:
                yield error
                return
            yield from self._sparse(lines[:half], number)
            yield from self._sparse(lines[half:], number + half)
            return
        if found is not None:
            yield found

    def _text(self, line: bytes, number: int) -> str | DataError:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            return DataError(f"{self.where}:{number}: not UTF-8 text ({error.reason})")

    def _record(self, line: bytes, number: int) -> str | Features | DataError:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            return self._wrong(number, f"not JSON ({' '.join(str(error).split())[:80]})")
        if isinstance(record, dict) and self.texts and isinstance(record.get("text"), str):
            return str(record["text"])
        if not isinstance(record, dict) or not isinstance(record.get("features"), dict) or not self.n_features:
            return self._wrong(number, f"found {line.decode(errors='backslashreplace')[:60]}")
        found: Features = {}
        for key, value in record["features"].items():
            if len(key) > 10 or not key.isdecimal() or str(int(key)) != key or int(key) >= self.n_features:
                return self._wrong(number, f"feature {key[:20]!r} is not a number from 0 to {self.n_features - 1}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 3.4e38:
                return self._wrong(number, f"feature {key} has the value {str(value)[:20]}, not a number of float32")
            found[int(key)] = float(value)
        return found

    def _wrong(self, number: int, what: str) -> DataError:
        expected = '{"text": "..."}' if self.texts else '{"features": {"12": 0.5, ...}}'
        return DataError(f"{self.where}:{number}: {what}; expected {expected}")


def _rows(some: Sequence[Features], n_features: int) -> CsrArray:
    ends = np.cumsum([0, *map(len, some)])
    ids = np.fromiter((i for row in some for i in sorted(row)), np.int32, int(ends[-1]))
    values = np.fromiter((row[i] for row in some for i in sorted(row)), np.float32, int(ends[-1]))
    return from_arrays(values, ids, ends, (len(some), n_features))


def _labelled(model: Model, inputs: Any, k: int, names: bool, threshold: float) -> list[Answer]:
    scores, ids = model.top_k(inputs, min(k, model.n_labels))
    said = model.label_names if names else None
    return [
        {
            "labels": [
                {"label": label if said is None else said[label], "score": round(score, 6)}
                for score, label in zip(*row, strict=True)
                if score > threshold
            ]
        }
        for row in zip(scores.tolist(), ids.tolist(), strict=True)
    ]
