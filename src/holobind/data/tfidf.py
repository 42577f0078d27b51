"""Features of texts: for datasets that bring none, and for models that read texts."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind._types import CsrArray
from holobind.data.csr import from_arrays
from holobind.errors import DataError

WORD = re.compile(r"\w{2,}")  # of a text without underscores: faster than to rule them out letter by letter
LETTERS = 4  # of a word are its beginning: a stem for any language
SHARE = 0.7  # of a word's weight is a beginning's, which says less
LONG = 32  # words: a text of so many mostly starts with a title, or with what it is about
FIRST = 8  # words of a long text are taken for that
TIMES = 4  # so often each of them counts
SOFT = 3  # is added to ln(1 / frequency), where 1 is usual: common words help with the second to fifth label
COMMON = 2  # texts have a feature at least: what only one has says nothing about others
HEAVIEST = 100  # features of a text: the others are common words, and as good as left out
MOST = 40_000  # features: rarer ones cost memory and gain nothing
PORTION = 4096  # texts at a time: bounds the memory that is taken on the way

# The words of texts as numbers, one text after the other, and where each starts; at last, where the last one ends.
Read: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int64]]


class Tfidf:
    """Sublinear tf-idf of words and their beginnings, with L2 rows.

        x[f] = idf[f] (1 + ln count[f]),    x / |x|

    Words are runs of letters and digits, at least two, in lower case; an underscore ends a word. The beginning of a
    word is its first four letters: "cooking" and "cooked" share "cook*", which no word can be. In a text of 32 words or
    more the first eight count four times; a text keeps its 100 heaviest features. `words`, with beginnings among them,
    and `idf` are all of its state; words that it was not fitted on count for nothing.

    It is plain if it has no beginnings; every word of a text then counts once, and is kept, however long the text.
    """

    def __init__(self, words: Sequence[str], idf: NDArray[np.float32]) -> None:
        self.words, self.idf = list(words), np.asarray(idf, np.float32)
        self._column = {word: i for i, word in enumerate(self.words)}
        if len(words) != len(idf) or len(self._column) != len(words):
            raise DataError(
                f"tf-idf wants different words with one number each, got {len(words)} words and {len(idf)} numbers"
            )
        self.plain = not any(word.endswith("*") for word in self.words)

    @classmethod
    def fit(cls, texts: Sequence[str], *, plain: bool = False) -> tuple["Tfidf", CsrArray]:
        """Learn words and their weights, and the features of these texts with them.

            idf[f] = 3 + ln((1 + texts) / (1 + texts with f)),    times 0.7 for a beginning

        It keeps the 40,000 words and beginnings that most texts have, of those in two or more (or in one, if no two
        texts share any). If plain: all words, no beginnings, and 1 in place of 3.
        """
        number: dict[str, int] = defaultdict(count().__next__)
        read = [_read(portion, number) for portion in _portions(texts)]
        names = sorted(number if plain else {*number, *(_beginning(word) for word in number if len(word) >= LETTERS)})
        table = _table(number, {name: i for i, name in enumerate(names)})
        df = np.zeros(len(names), np.int64)
        for portion in read:
            df += np.bincount(_counts(portion, table, plain=True).indices, minlength=len(names))
        if not plain:
            kept = np.argsort(-df, kind="stable")[:MOST]
            kept = np.sort(kept[df[kept] >= min(COMMON, df.max(initial=1))])
            names, df, table = [names[i] for i in kept], df[kept], table[:, kept]
        idf = (1 if plain else SOFT) + np.log(np.float32(1 + len(texts)) / (1 + df).astype(np.float32))
        idf[[name.endswith("*") for name in names]] *= SHARE
        fitted = cls(names, idf)
        return fitted, _stacked([fitted._rows(portion, table) for portion in read])

    def transform(self, texts: Sequence[str]) -> CsrArray:
        """Shapes: texts -> sparse (texts, words)"""
        rows = []
        for portion in _portions(texts):
            number: dict[str, int] = defaultdict(count().__next__)
            read = _read(portion, number)
            rows.append(self._rows(read, _table(number, self._column)))
        return _stacked(rows)

    def _rows(self, read: Read, table: CsrArray) -> CsrArray:
        rows = _counts(read, table, self.plain)
        rows.sort_indices()
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        if not self.plain:
            rows = _heaviest(rows, HEAVIEST)
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        length = np.sqrt(np.bincount(row, rows.data**2, rows.shape[0]))
        length[length == 0] = 1  # a file may hold an idf of 0: a row of such words stays 0
        rows.data = (rows.data / length[row]).astype(np.float32)
        return rows


def _heaviest(rows: CsrArray, most: int) -> CsrArray:
    """The largest entries of each row, at most so many; among equals the earlier."""
    kept = np.ones(rows.nnz, bool)
    for row in np.flatnonzero(np.diff(rows.indptr) > most):
        here = slice(rows.indptr[row], rows.indptr[row + 1])
        kept[here][np.argsort(-rows.data[here], kind="stable")[most:]] = False
    ends = np.append(0, np.cumsum(kept))[rows.indptr]
    return from_arrays(rows.data[kept], rows.indices[kept], ends, rows.shape)


def _portions(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """At least one, be it empty."""
    return (texts[start : start + PORTION] for start in range(0, max(len(texts), 1), PORTION))


def _read(texts: Sequence[str], number: dict[str, int]) -> Read:
    """The words of texts; `number` has a number for every word, even for a new one."""
    words = (WORD.findall(text.lower().replace("_", " ")) for text in texts)
    ids = [np.fromiter(map(number.__getitem__, found), np.int32, len(found)) for found in words]
    return np.concatenate([np.empty(0, np.int32), *ids]), np.cumsum([0, *map(len, ids)])


def _beginning(word: str) -> str:
    return word[:LETTERS] + "*"


def _table(number: dict[str, int], column: dict[str, int]) -> CsrArray:
    """Which features a word is: itself and its beginning, where they have a column. Shapes: sparse (words, columns)"""
    found = np.array([(column.get(word, -1), column.get(_beginning(word), -1)) for word in number]).reshape(-1, 2)
    known = found >= 0
    ends = np.cumsum([0, *known.sum(1)])
    return from_arrays(np.ones(ends[-1], np.float32), found[known], ends, (len(number), len(column)))


def _counts(read: Read, table: CsrArray, plain: bool) -> CsrArray:
    """How often texts have features. Shapes: sparse (texts, columns)"""
    ids, ends = read
    times = np.ones(len(ids), np.float32)
    if not plain:
        long = ends[:-1][np.diff(ends) >= LONG]
        times[long[:, None] + np.arange(FIRST)] = TIMES
    said: CsrArray = sparse.csr_array((times, ids, ends), shape=(len(ends) - 1, table.shape[0]))
    return said @ table  # which sums over a word said twice


def _stacked(portions: list[CsrArray]) -> CsrArray:
    rows = sparse.vstack(portions, format="csr")
    return from_arrays(rows.data, rows.indices, rows.indptr, rows.shape)
