"""Tf-idf features of texts, for datasets without features and for models that read texts."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind._types import CsrArray, FloatArray, IntArray
from holobind.data import analyzers
from holobind.data._array_builder import ArrayBuilder
from holobind.data.csr import from_arrays, normalise_rows_unchecked
from holobind.data.mapped_texts import MappedTexts
from holobind.data.run_table import MAX_RUNS, RunIds, RunTable
from holobind.errors import DataError, OptionError

PREFIX_WEIGHT = 0.7  # factor of a prefix's idf: a prefix is less specific than a word
LONG_TEXT_WORDS = 32  # texts of at least this many words mostly start with a title
LEAD_WORDS = 8  # the first words of a long text, taken for its title
LEAD_REPEATS = 4  # how often each of them counts
IDF_OFFSET = 3  # added to ln(1 / frequency), where 1 is usual: common words help to rank the second to fifth label
MIN_DF = 2  # texts that must have a feature: a feature of one text does not help with other texts
MAX_FEATURES_PER_TEXT = 100  # the lightest features of a longer text are common words, which hardly matter
MAX_NGRAMS_PER_TEXT = 400  # the same bound of a text with character n-grams, of which a word has several
# The most frequent features are kept: a third as many as texts, within these bounds. Of 640,000 titles 40,000 features
# leave out words of ten titles, which decide between rare labels; 100,000 would take more memory than they are worth.
MIN_FEATURES_KEPT, MAX_FEATURES_KEPT, TEXTS_PER_FEATURE = 40_000, 80_000, 3
TEXTS_PER_CHUNK = 4096  # bounds the temporary memory
MAX_TEXTS_TO_CHOOSE = 20_000  # of which the analyzer is chosen, about


@dataclass(frozen=True)
class StreamedFit:
    """How features of texts in a file were fitted, in one pass: numbers of texts, of features that were found and
    kept, and of rare runs that were dropped because the table of runs was full.
    """

    texts: int
    found: int
    kept: int
    dropped: int

    def summary(self) -> str:
        """One line."""
        dropped = f"; {self.dropped:,} rare words were dropped, the table was full" if self.dropped else ""
        return f"tf-idf of {self.texts:,} texts in one pass: {self.kept:,} of {self.found:,} features kept{dropped}"


class Tfidf:
    """Sublinear tf-idf of words and their prefixes, or of character n-grams, with rows of length 1 (L2).

        x[f] = idf[f] (1 + ln count[f]),    x / |x|

    Words are runs of at least two letters and digits, in lower case; an underscore ends a word. The prefix of a word is
    its first four letters: "cooking" and "cooked" have the prefix "cook*" (no word contains an asterisk). Scripts that
    do not separate words have character n-grams in place of words (`analyzers`). In a text of 32 words or more the
    first eight words count four times. A text keeps the 100 features with the largest weights, or 400 if it has
    n-grams. Words and prefixes that were not in the fitted texts are ignored.

    words        the words, prefixes or n-grams, one for each feature
    idf          (features) float32
    analyzer     "word", "char", or "plain": words alone, every word counts once, and a text keeps all of its features

    These are the whole state. `streamed` says how it was fitted to texts in a file.
    """

    streamed: StreamedFit | None = None

    def __init__(self, words: Sequence[str], idf: FloatArray, analyzer: str = "word") -> None:
        self.words, self.idf, self.analyzer = list(words), np.asarray(idf, np.float32), analyzer
        self._column = {word: i for i, word in enumerate(self.words)}
        if len(words) != len(idf) or len(self._column) != len(words):
            raise DataError(
                f"tf-idf needs distinct words and one idf for each, got {len(words)} words and {len(idf)} idf values"
            )
        if analyzer not in analyzers.ANALYZERS:
            raise OptionError(f"tf-idf has the analyzers {', '.join(analyzers.ANALYZERS)}; got {analyzer!r:.40}")
        self._is_ngram = np.array([analyzer == "char" or analyzers.is_unspaced(word) for word in self.words], bool)

    @property
    def words_only(self) -> bool:
        return self.analyzer == "plain"

    def unfitted(self) -> None:
        """The vectoriser of scikit-learn that makes these features: none does."""

    @classmethod
    def fit(cls, texts: Sequence[str], *, analyzer: str = "auto", words_only: bool = False) -> tuple["Tfidf", CsrArray]:
        """Learn the words and their idf from texts. Returns the fitted transformation and the features of these texts.

            idf[f] = 3 + ln((1 + texts) / (1 + texts with f)),    times 0.7 for a prefix

        The words and prefixes with the highest document frequency are kept, if it is at least 2 (or at least 1, if no
        two texts have a word in common): `max_features` of the number of texts. With `words_only` all words are kept,
        there are no prefixes, and 1 is added to the logarithm instead of 3, as in scikit-learn.

        Texts in a file (`MappedTexts`) are read once, and their features lie in a file, too. They are the same, unless
        the texts have more distinct words than MAX_RUNS: rare ones are then dropped (`run_table`).

        analyzer   "word", "char", or "auto": chosen from the texts
        """
        if words_only:
            analyzer = "plain"
        elif analyzer == "auto":
            step = max(1, len(texts) // MAX_TEXTS_TO_CHOOSE)
            analyzer = analyzers.choose_analyzer(texts.every(step) if isinstance(texts, MappedTexts) else texts[::step])
        in_file = isinstance(texts, MappedTexts)
        table = RunTable(analyzer, in_file=in_file, max_runs=MAX_RUNS if in_file else None)
        for some_texts in _chunks(texts):
            table.add(some_texts)
        features = _Features.fit(table)
        df, n_found = np.zeros(len(features.names), np.int64), len(features.names)
        for chunk in table.chunks():
            df += np.bincount(features.counts(chunk, repeat_lead=False).indices, minlength=len(df))
        if not words_only:
            kept = np.argsort(-df, kind="stable")[: max_features(len(texts))]
            kept = np.sort(kept[df[kept] >= min(MIN_DF, df.max(initial=1))])
            df, features = df[kept], features.select(kept)
        idf = (1 if words_only else IDF_OFFSET) + np.log(np.float32(1 + len(texts)) / (1 + df).astype(np.float32))
        idf[[name.endswith("*") for name in features.names]] *= PREFIX_WEIGHT
        fitted = cls(features.names, idf, analyzer)
        if in_file:
            fitted.streamed = StreamedFit(len(texts), n_found, len(features.names), table.n_dropped)
        return fitted, fitted._stack((fitted._rows(chunk, features) for chunk in table.chunks()), in_file)

    def transform(self, texts: Sequence[str]) -> CsrArray:
        """The features of texts; in a file, where the texts are in one.  Shapes: texts -> sparse (texts, features)"""
        return self._stack(map(self._known_rows, _chunks(texts)), isinstance(texts, MappedTexts))

    def _known_rows(self, texts: Sequence[str]) -> CsrArray:
        table = RunTable(self.analyzer)
        table.add(texts)
        features = _Features.known(table, self.words, self._column)
        return self._rows(next(table.chunks()), features)

    def _stack(self, chunks: Iterable[CsrArray], in_file: bool) -> CsrArray:
        """One matrix of some rows; in a temporary file with `in_file`."""
        if not in_file:
            rows = sparse.vstack(list(chunks), format="csr")
            return from_arrays(rows.data, rows.indices, rows.indptr, rows.shape)
        data, ids, counts = (ArrayBuilder.in_file(dtype) for dtype in (np.float32, np.int32, np.int32))
        for rows in chunks:
            data.append(rows.data)
            ids.append(rows.indices)
            counts.append(np.diff(rows.indptr))
        return from_arrays(data.build(), ids.build(), counts.build_offsets(), (counts.length, len(self.words)))

    def _rows(self, chunk: RunIds, features: "_Features") -> CsrArray:
        rows = features.counts(chunk, repeat_lead=not self.words_only)
        rows.sort_indices()
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        if not self.words_only:
            n_ngrams = np.append(0, np.cumsum(self._is_ngram[rows.indices]))[rows.indptr]
            bounds = np.where(np.diff(n_ngrams) > 0, MAX_NGRAMS_PER_TEXT, MAX_FEATURES_PER_TEXT)
            rows = _keep_largest(rows, bounds)
        return normalise_rows_unchecked(rows, square_dtype=np.float32)


def all_features(texts: Sequence[str], analyzer: str) -> list[str]:
    """Every feature of some texts, in alphabetical order."""
    table = RunTable(analyzer)
    for chunk in _chunks(texts):
        table.add(chunk)
    return _Features.fit(table).names


def max_features(n_texts: int) -> int:
    """How many features are kept of so many texts."""
    return min(max(MIN_FEATURES_KEPT, n_texts // TEXTS_PER_FEATURE), MAX_FEATURES_KEPT)


@dataclass(frozen=True)
class _Features:
    """The features of distinct runs.

    names     of the features
    table     sparse (runs, features): how often a run has a feature
    n_words   (runs), about, for which a run stands
    """

    names: list[str]
    table: CsrArray
    n_words: IntArray

    @classmethod
    def fit(cls, runs: RunTable) -> "_Features":
        """All features of the runs, in alphabetical order."""
        column: dict[str, int] = defaultdict(count().__next__)
        found = cls.known(runs, [], column)
        names = list(column)
        return replace(found, names=names).select(np.array(sorted(range(len(names)), key=names.__getitem__), np.intp))

    @classmethod
    def known(cls, runs: RunTable, names: list[str], column: dict[str, int]) -> "_Features":
        """The features of the runs that have a column; runs that were dropped have none."""
        grow = isinstance(column, defaultdict)
        columns, ends = array("i"), array("q", [0])
        for run in runs.runs():
            of_run = analyzers.features(run, runs.analyzer)
            columns.extend([column[f] for f in of_run] if grow else [column[f] for f in of_run if f in column])
            ends.append(len(columns))
        n_words = runs.n_words()
        ends.extend([len(columns)] * (len(n_words) + 1 - len(ends)))
        ids, shape = np.frombuffer(columns, np.int32), (len(n_words), len(column))
        table: CsrArray = sparse.csr_array((np.ones(len(ids), np.float32), ids, np.array(ends)), shape=shape)
        table.sum_duplicates()
        return cls(names, table, n_words)

    def select(self, columns: NDArray[np.intp]) -> "_Features":
        return replace(self, names=[self.names[i] for i in columns], table=self.table[:, columns])

    def counts(self, chunk: RunIds, repeat_lead: bool) -> CsrArray:
        """How often each text has each feature.  Shapes: -> sparse (texts, features)

        repeat_lead   count the first words of long texts LEAD_REPEATS times
        """
        ids, offsets = chunk
        repeats = np.ones(len(ids), np.float32)
        if repeat_lead:
            ends = np.append(0, np.cumsum(self.n_words[ids]))
            lengths = np.diff(ends[offsets])
            in_text = ends[:-1] - np.repeat(ends[offsets[:-1]], np.diff(offsets))  # words before a run in its text
            repeats[(in_text < LEAD_WORDS) & np.repeat(lengths >= LONG_TEXT_WORDS, np.diff(offsets))] = LEAD_REPEATS
        runs: CsrArray = sparse.csr_array((repeats, ids, offsets), shape=(len(offsets) - 1, self.table.shape[0]))
        return runs @ self.table  # the product sums over the occurrences of a run


def _keep_largest(rows: CsrArray, bounds: IntArray) -> CsrArray:
    """The largest entries of each row, at most as many as its bound; ties go to the lowest column."""
    kept = np.ones(rows.nnz, bool)
    for row in np.flatnonzero(np.diff(rows.indptr) > bounds):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        kept[entries][np.argsort(-rows.data[entries], kind="stable")[bounds[row] :]] = False
    indptr = np.append(0, np.cumsum(kept))[rows.indptr]
    return from_arrays(rows.data[kept], rows.indices[kept], indptr, rows.shape)


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """At least one chunk, which may be empty."""
    if isinstance(texts, MappedTexts) and len(texts):
        return texts.chunks(TEXTS_PER_CHUNK)
    return (texts[start : start + TEXTS_PER_CHUNK] for start in range(0, max(len(texts), 1), TEXTS_PER_CHUNK))
