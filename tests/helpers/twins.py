"""Slow and obvious implementations, against which the fast ones are tested."""

import itertools
import re
from fractions import Fraction

import numpy as np
from scipy.sparse import csr_array

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LABEL = re.compile(r"\+?\d+(\.0*)?")
FEATURE = re.compile(r"\+?\d+")
MAX_IDS = 1 << 24  # of a small file


class InvalidFile(Exception):  # noqa: N818
    """The file is not in the format; the argument is the number of the line, if there is one."""


def nearest(text):
    """The float32 nearest to a decimal text, found by bisection of all float32 numbers."""
    exact = Fraction(text)
    low, high = 0, 0x7F800000  # positive float32 numbers are ordered as their bit patterns
    size = abs(exact)

    def number(bits):
        return Fraction(2) ** 128 if bits == 0x7F800000 else Fraction(float(np.uint32(bits).view(np.float32)))

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if number(middle) <= size else (low, middle)
    below, above = size - number(low), number(high) - size
    bits = low if below < above or (below == above and low % 2 == 0) else high
    if bits == 0x7F800000:
        raise OverflowError
    value = np.uint32(bits).view(np.float32)
    return -value if text.startswith("-") else value


def read_by_definition(content, one_based=False):
    """(X, Y) of a text in the XML-Repository or svmlight multilabel format, or InvalidFile(line)."""
    if not content:
        raise InvalidFile(None)
    text = content.decode("latin-1").removeprefix("\xef\xbb\xbf")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    header = re.fullmatch(r"#?[ \t]*(\d+)[ \t]+(\d+)[ \t]+(\d+)[ \t]*\r?", lines[0])
    sizes = tuple(map(int, header.groups())) if header else None
    if sizes and (sizes[0] >= 2**31 or max(sizes[1:]) > MAX_IDS):
        raise InvalidFile(1)
    rows, empty = [], []
    for number, line in enumerate(lines[1:] if header else lines, 2 if header else 1):
        if line.startswith("#"):
            continue
        if line in ("", "\r"):
            empty.append(len(rows))
            continue
        rows.append(_row(line, number, sizes, int(one_based)))
    if sizes and sizes[0] != len(rows):
        if sizes[0] != len(rows) + len(empty):
            raise InvalidFile(1)
        for place in reversed(empty):
            rows.insert(place, ([], {}))
    if not sizes and not rows:
        raise InvalidFile(None)
    n_features = sizes[1] if sizes else max([f + 1 for _, x in rows for f in x], default=0)
    n_labels = sizes[2] if sizes else max([y + 1 for ys, _ in rows for y in ys], default=0)
    X = [[(f, x[f]) for f in sorted(x)] for _, x in rows]
    Y = [[(y, 1) for y in sorted(set(ys))] for ys, _ in rows]
    return csr(X, n_features, np.float32), csr(Y, n_labels, np.int32)


def _row(line, number, sizes, base):
    tokens = list(itertools.takewhile(lambda t: not t.startswith("#"), re.findall(r"[^ \t]+", line.removesuffix("\r"))))
    labels, features = [], {}
    for place, token in enumerate(tokens):
        if place == 0 and ":" not in token:
            for label in token.split(","):
                if not LABEL.fullmatch(label):
                    raise InvalidFile(number)
                labels.append(int(Fraction(label)) - base)
                if not 0 <= labels[-1] < (sizes[2] if sizes else MAX_IDS):
                    raise InvalidFile(number)
            continue
        feature, colon, value = token.partition(":")
        if not colon or not FEATURE.fullmatch(feature) or not NUMBER.fullmatch(value):
            raise InvalidFile(number)
        f = int(feature) - base
        if not 0 <= f < (sizes[1] if sizes else MAX_IDS) or f in features:
            raise InvalidFile(number)
        try:
            features[f] = nearest(value)
        except OverflowError:
            raise InvalidFile(number) from None
    return labels, features


def csr(rows, width, dtype):
    """A CSR matrix from rows of (column, value)."""
    ends = np.cumsum([0, *map(len, rows)])
    ids = np.array([i for row in rows for i, _ in row], int)
    data = np.array([v for row in rows for _, v in row], dtype)
    return csr_array((data, ids, ends), shape=(len(rows), width))


def identical(a, b):
    """Whether two CSR matrices have the same shape, types and entries, bit for bit."""
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and a.data.tobytes() == b.data.tobytes()
    )
