"""The runs of texts (`analyzers`) as ids, chunk by chunk: in memory, or in files with a table of bounded size.

The table in memory has each distinct run once. Where it is bounded and full, it drops the runs with the fewest
occurrences so far, until half of it is left. What a text has of a dropped run is lost for its features, but still
counts for its length; a run that comes again later is counted from there on. So a document frequency is too low by at
most the number of occurrences at which a run was dropped, and only runs that are rare at first are concerned.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holobind._types import IntArray
from holobind.data import analyzers
from holobind.data._array_builder import ArrayBuilder
from holobind.data.csr import release_array

MAX_RUNS = 1 << 20  # of a bounded table, which then takes about 0.3 GB with its features
CHUNK_RUNS = 1 << 19  # ids of runs that are read at a time from a file, unless one text has more
CHUNK_TEXTS = 4096
MAX_WORDS = 32  # the length from which on it does not matter how long a run is (`tfidf.LONG_TEXT_WORDS`)

# Ids of the runs of texts, one text after the other, and the offsets: text i is ids[offsets[i] : offsets[i + 1]].
RunIds: TypeAlias = tuple[NDArray[np.int32], IntArray]


class RunTable:
    """Runs and their ids, in the order in which runs are first seen.

    in_file     keep the ids of texts in temporary files
    max_runs    in the table; None: any number

    n_dropped   runs that were dropped because the table was full
    """

    def __init__(self, analyzer: str, *, in_file: bool = False, max_runs: int | None = None) -> None:
        self.analyzer, self.max_runs, self.n_dropped = analyzer, max_runs, 0
        self._ids: dict[str, int] = defaultdict(count().__next__)
        self._n_assigned = 0
        self._counts = np.zeros(0, np.int64)  # of occurrences, by id; only where the table is bounded
        self._dropped_words = np.zeros(0, np.int8)  # of dropped runs, by id; -1 for others
        self._spilled = (ArrayBuilder.in_file(np.int32), ArrayBuilder.in_file(np.int32)) if in_file else None
        self._chunks: list[RunIds] = []

    def add(self, texts: Sequence[str]) -> None:
        """Add the runs of some texts."""
        chunk = run_ids(texts, self._ids, self.analyzer)
        self._n_assigned = max(self._n_assigned, int(chunk[0].max(initial=-1)) + 1)
        if self._spilled is None:
            self._chunks.append(chunk)
        else:
            self._spilled[0].append(chunk[0])
            self._spilled[1].append(np.diff(chunk[1]))
        if self.max_runs is not None:
            found = np.bincount(chunk[0], minlength=self._n_assigned)
            found[: len(self._counts)] += self._counts
            self._counts = found
            if len(self._ids) > self.max_runs:
                self._drop_rare(self.max_runs // 2)

    def runs(self) -> list[str]:
        """The distinct runs, in the order of the ids that `chunks` gives."""
        return list(self._ids)

    def n_words(self) -> IntArray:
        """About how many words each id of `chunks` stands for: first the runs, then what was dropped."""
        of_runs = (analyzers.n_words(run, self.analyzer) for run in self._ids)
        known = np.fromiter(of_runs, np.int64, len(self._ids))
        return np.append(known, np.arange(MAX_WORDS + 1)) if self.n_dropped else known

    def chunks(self) -> Iterator[RunIds]:
        """The ids of the runs of all texts. Ids after those of `runs` stand for runs that were dropped."""
        if self._spilled is None:
            yield from self._chunks
            return
        ids, offsets = self._spilled[0].build(), self._spilled[1].build_offsets()
        new_ids = self._new_ids() if self.n_dropped else None
        first, n = 0, len(offsets) - 1
        while first < n:
            start = int(offsets[first])
            ends = offsets[first + 1 : first + CHUNK_TEXTS + 1]
            last = first + max(1, int(np.searchsorted(ends, start + CHUNK_RUNS, "right")))
            end = int(offsets[last])
            chunk = np.array(ids[start:end])
            yield chunk if new_ids is None else new_ids[chunk], np.array(offsets[first : last + 1], np.int64) - start
            release_array(ids, start, end)
            first = last

    def _drop_rare(self, n_kept: int) -> None:
        """Keep the most frequent runs; of runs with equal counts, the earlier ones."""
        at = np.fromiter(self._ids.values(), np.int64, len(self._ids))
        kept = np.zeros(len(self._counts), bool)
        kept[at[np.argsort(-self._counts[at], kind="stable")[:n_kept]]] = True
        words = np.full(self._n_assigned, -1, np.int8)
        words[: len(self._dropped_words)] = self._dropped_words
        for run, i in self._ids.items():
            if not kept[i]:
                words[i] = min(analyzers.n_words(run, self.analyzer), MAX_WORDS)
        self.n_dropped += len(at) - int(kept.sum())
        self._dropped_words = words
        next_id = count(self._n_assigned).__next__
        self._ids = defaultdict(next_id, ((run, i) for run, i in self._ids.items() if kept[i]))

    def _new_ids(self) -> NDArray[np.int32]:
        """Ids without gaps: those of the runs, then one for each number of words of a dropped run."""
        new = np.full(self._n_assigned, -1, np.int32)
        n = len(self._ids)
        new[np.fromiter(self._ids.values(), np.int64, n)] = np.arange(n)
        dropped = np.flatnonzero(self._dropped_words >= 0)
        new[dropped] = n + self._dropped_words[dropped]
        return new


def run_ids(texts: Sequence[str], ids: dict[str, int], analyzer: str) -> RunIds:
    """The runs of texts as ids; `ids` assigns the next id to a run that it does not have yet."""
    found = (analyzers.runs(text, analyzer) for text in texts)
    of_texts = [np.fromiter(map(ids.__getitem__, runs), np.int32, len(runs)) for runs in found]
    return np.concatenate([np.empty(0, np.int32), *of_texts]), np.cumsum([0, *map(len, of_texts)])
