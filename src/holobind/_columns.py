"""Generators, columns and frames of other libraries as lists, so that callers need not convert them.

A column of polars, Arrow or a Hugging Face dataset and a generator are lists of values; numpy's arrays and pandas'
columns stay as they are, because their dtype counts. A frame whose columns are all texts is a list of texts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from holobind.errors import DataError

LIST_METHODS = ("to_pylist", "to_list")  # of Arrow and of polars


def as_list(values: Any) -> Any:
    """A column or a generator as a list; anything else as it is."""
    if isinstance(values, Iterator):
        return list(values)
    if isinstance(values, list | tuple | str | bytes) or hasattr(values, "tolist") or hasattr(values, "columns"):
        return values
    for name in LIST_METHODS:
        if callable(method := getattr(values, name, None)):
            return method()
    return list(values) if isinstance(values, Sequence) else values


def joined_texts(frame: Any) -> list[str] | None:
    """The texts of a frame, its columns joined in order with spaces; None if it is no frame of texts.

    A missing value is an empty text, where the frame has several columns.
    """
    names = list(frame.columns) if len(getattr(frame, "shape", ())) == 2 and hasattr(frame, "columns") else []
    columns = [frame[name] for name in names] if len(set(map(str, names))) == len(names) else []
    firsts = [next((value for value in column if not _is_missing(value)), None) for column in columns]
    texts = [isinstance(value, str) for value in firsts]
    if not any(texts):
        return None
    if not all(texts):
        kinds = dict(zip(names, texts, strict=True))
        others = ", ".join(repr(name) for name, is_text in kinds.items() if not is_text)
        raise DataError(f"X has columns of texts and others ({others[:80]}); give it the columns of texts alone")
    if len(columns) == 1:
        return list(columns[0])
    return [" ".join(value for value in row if not _is_missing(value) and value) for row in zip(*columns, strict=True)]


def as_texts(inputs: Any) -> list[str] | None:
    """The inputs as a list, if they are texts, or if there are none."""
    if isinstance(inputs, str):
        raise DataError(f"texts come in a list; got one text, {inputs[:40]!r}")
    inputs = as_list(inputs)
    if getattr(inputs, "ndim", None) == 1 and hasattr(inputs, "tolist"):  # an array, or a column of a table
        inputs = inputs.tolist()
    elif (joined := joined_texts(inputs)) is not None:
        inputs = joined
    if not isinstance(inputs, Sequence):
        return None
    missing_first = bool(inputs) and _is_missing(inputs[0]) and any(isinstance(each, str) for each in inputs)
    if inputs and not (isinstance(inputs[0], str) or missing_first):
        return None
    for i, text in enumerate(inputs):
        if not isinstance(text, str):
            got = type(text).__name__
            raise DataError(f"inputs are texts, but number {i + 1} is {got}; put '' where a text is missing")
    return list(inputs)


def _is_missing(value: Any) -> bool:
    return value is None or (not isinstance(value, str) and value != value)  # noqa: PLR0124 as nan does
