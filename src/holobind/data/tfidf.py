"""Tf-idf features of texts, for datasets without features and for models that read texts."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data.csr import from_arrays, normalise_rows_unchecked
from holobind.errors import DataError

# Words of the default model; text networks have `tokenizer.TOKEN_PATTERN`. Texts come without underscores: faster here.
TFIDF_WORD_PATTERN = re.compile(r"\w{2,}")
PREFIX_LETTERS = 4  # letters of a prefix, which serves as a stem for any language
PREFIX_WEIGHT = 0.7  # factor of a prefix's idf: a prefix is less specific than a word
LONG_TEXT_WORDS = 32  # texts of at least this many words mostly start with a title
LEAD_WORDS = 8  # the first words of a long text, taken for its title
LEAD_REPEATS = 4  # how often each of them counts
IDF_OFFSET = 3  # added to ln(1 / frequency), where 1 is usual: common words help to rank the second to fifth label
MIN_DF = 2  # texts that must have a feature: a feature of one text does not help with other texts
MAX_FEATURES_PER_TEXT = 100  # the lightest features of a longer text are common words, which hardly matter
MAX_FEATURES = 40_000  # rarer features cost memory and do not improve the ranking
TEXTS_PER_CHUNK = 4096  # bounds the temporary memory

# Word ids of texts, one text after the other, and the offsets: text i is ids[offsets[i] : offsets[i + 1]].
WordIds: TypeAlias = tuple[NDArray[np.int32], IntArray]


class Tfidf:
    """Sublinear tf-idf of words and their prefixes, with rows of length 1 (L2).

        x[f] = idf[f] (1 + ln count[f]),    x / |x|

    Words are runs of at least two letters and digits, in lower case; an underscore ends a word. The prefix of a word is
    its first four letters: "cooking" and "cooked" have the prefix "cook*" (no word contains an asterisk). In a text of
    32 words or more the first eight words count four times. A text keeps the 100 features with the largest weights.
    Words and prefixes that were not in the fitted texts are ignored.

    words        the words and prefixes, one for each feature
    idf          (features) float32
    words_only   whether there are no prefixes; then every word counts once, and a text keeps all of its features

    `words` and `idf` are the whole state.
    """

    def __init__(self, words: Sequence[str], idf: FloatArray) -> None:
        self.words, self.idf = list(words), np.asarray(idf, np.float32)
        self._column = {word: i for i, word in enumerate(self.words)}
        if len(words) != len(idf) or len(self._column) != len(words):
            raise DataError(
                f"tf-idf needs distinct words and one idf for each, got {len(words)} words and {len(idf)} idf values"
            )
        self.words_only = not any(word.endswith("*") for word in self.words)

    @classmethod
    def fit(cls, texts: Sequence[str], *, words_only: bool = False) -> tuple["Tfidf", CsrArray]:
        """Learn the words and their idf from texts. Returns the fitted transformation and the features of these texts.

            idf[f] = 3 + ln((1 + texts) / (1 + texts with f)),    times 0.7 for a prefix

        The 40,000 words and prefixes with the highest document frequency are kept, if it is at least 2 (or at least 1,
        if no two texts have a word in common). With `words_only` all words are kept, there are no prefixes, and 1 is
        added to the logarithm instead of 3, as in scikit-learn.
        """
        word_ids: dict[str, int] = defaultdict(count().__next__)
        chunks = [_word_ids(chunk, word_ids) for chunk in _chunks(texts)]
        prefixes = () if words_only else (_prefix(word) for word in word_ids if len(word) >= PREFIX_LETTERS)
        names = sorted({*word_ids, *prefixes})
        table = _word_features(word_ids, {name: i for i, name in enumerate(names)})
        df = np.zeros(len(names), np.int64)
        for chunk in chunks:
            df += np.bincount(_feature_counts(chunk, table, repeat_lead=False).indices, minlength=len(names))
        if not words_only:
            kept = np.argsort(-df, kind="stable")[:MAX_FEATURES]
            kept = np.sort(kept[df[kept] >= min(MIN_DF, df.max(initial=1))])
            names, df, table = [names[i] for i in kept], df[kept], table[:, kept]
        idf = (1 if words_only else IDF_OFFSET) + np.log(np.float32(1 + len(texts)) / (1 + df).astype(np.float32))
        idf[[name.endswith("*") for name in names]] *= PREFIX_WEIGHT
        fitted = cls(names, idf)
        return fitted, _stack([fitted._rows(chunk, table) for chunk in chunks])

    def transform(self, texts: Sequence[str]) -> CsrArray:
        """The features of texts.  Shapes: texts -> sparse (texts, features)"""
        rows = []
        for chunk in _chunks(texts):
            word_ids: dict[str, int] = defaultdict(count().__next__)
            ids = _word_ids(chunk, word_ids)
            rows.append(self._rows(ids, _word_features(word_ids, self._column)))
        return _stack(rows)

    def _rows(self, chunk: WordIds, table: CsrArray) -> CsrArray:
        rows = _feature_counts(chunk, table, repeat_lead=not self.words_only)
        rows.sort_indices()
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        if not self.words_only:
            rows = _keep_largest(rows, MAX_FEATURES_PER_TEXT)
        return normalise_rows_unchecked(rows, square_dtype=np.float32)


def _keep_largest(rows: CsrArray, n: int) -> CsrArray:
    """The n largest entries of each row; ties go to the lowest column."""
    kept = np.ones(rows.nnz, bool)
    for row in np.flatnonzero(np.diff(rows.indptr) > n):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        kept[entries][np.argsort(-rows.data[entries], kind="stable")[n:]] = False
    indptr = np.append(0, np.cumsum(kept))[rows.indptr]
    return from_arrays(rows.data[kept], rows.indices[kept], indptr, rows.shape)


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """At least one chunk, which may be empty."""
    return (texts[start : start + TEXTS_PER_CHUNK] for start in range(0, max(len(texts), 1), TEXTS_PER_CHUNK))


def _word_ids(texts: Sequence[str], word_ids: dict[str, int]) -> WordIds:
    """The words of texts as ids; `word_ids` assigns the next id to a word that it does not have yet."""
    words = (TFIDF_WORD_PATTERN.findall(text.lower().replace("_", " ")) for text in texts)
    ids = [np.fromiter(map(word_ids.__getitem__, found), np.int32, len(found)) for found in words]
    return np.concatenate([np.empty(0, np.int32), *ids]), np.cumsum([0, *map(len, ids)])


def _prefix(word: str) -> str:
    return word[:PREFIX_LETTERS] + "*"


def _word_features(word_ids: dict[str, int], column: dict[str, int]) -> CsrArray:
    """The features of each word: itself and its prefix, if they have a column.  Shapes: -> sparse (words, features)"""
    pairs = [(column.get(word, -1), column.get(_prefix(word), -1)) for word in word_ids]
    columns = np.array(pairs).reshape(-1, 2)
    known = columns >= 0
    indptr = np.cumsum([0, *known.sum(1)])
    return from_arrays(np.ones(indptr[-1], np.float32), columns[known], indptr, (len(word_ids), len(column)))


def _feature_counts(chunk: WordIds, table: CsrArray, repeat_lead: bool) -> CsrArray:
    """How often each text has each feature.  Shapes: -> sparse (texts, features)

    repeat_lead   count the first words of long texts LEAD_REPEATS times
    """
    ids, offsets = chunk
    repeats = np.ones(len(ids), np.float32)
    if repeat_lead:
        long = offsets[:-1][np.diff(offsets) >= LONG_TEXT_WORDS]
        repeats[long[:, None] + np.arange(LEAD_WORDS)] = LEAD_REPEATS
    words: CsrArray = sparse.csr_array((repeats, ids, offsets), shape=(len(offsets) - 1, table.shape[0]))
    return words @ table  # the product sums over the occurrences of a word


def _stack(chunks: list[CsrArray]) -> CsrArray:
    rows = sparse.vstack(chunks, format="csr")
    return from_arrays(rows.data, rows.indices, rows.indptr, rows.shape)
