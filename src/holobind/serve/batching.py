"""Requests of many clients in one batch: a queue with a bound, and threads that predict.

A batch holds what arrived while the batches before it ran, and what arrives within `batch_seconds` of its first
request. So a request alone waits for at most that time, and under load a batch is as large as the load. Two batches run
at the same time, so that one predicts while requests of the other are read and answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from scipy import sparse

from holobind.label_filter import Label, allowed_labels
from holobind.label_sets import Ranking
from holobind.serve.problems import Problem
from holobind.serve.registry import Version
from holobind.serve.settings import Settings

RETRY_SECONDS = 1
BATCHES_AT_ONCE = 2


@dataclass
class Rows:
    """The rows of one request, and what is asked of them.

    inputs   texts, or a sparse matrix
    future   gets the ranking, and whether each row is empty
    """

    version: Version
    inputs: Any
    n_rows: int
    k: int
    exclude: tuple[Label, ...]
    future: "asyncio.Future[Ranked]" = field(repr=False)

    @property
    def key(self) -> tuple[object, ...]:
        """Rows with the same key can be predicted together."""
        return id(self.version), isinstance(self.inputs, list), self.exclude


@dataclass(frozen=True)
class Ranked:
    """A ranking of some rows; `empty` says which have no word or feature that the model knows."""

    ranking: Ranking
    empty: list[bool]


class Batcher:
    """Predicts for requests, in batches.

    on_batch   is called with each batch of rows of one model and its result, in a thread that predicts
    """

    def __init__(self, settings: Settings, on_batch: Callable[[Version, Any, Ranked, int], None] | None = None) -> None:
        self.settings, self.on_batch = settings, on_batch
        self.queued_rows = 0
        self._queue: deque[Rows] = deque()
        self._arrived = asyncio.Event()
        self._threads = ThreadPoolExecutor(BATCHES_AT_ONCE, "predict")
        self._free = asyncio.Semaphore(BATCHES_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to take requests, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._dispatch())

    async def stop(self) -> None:
        """Predict what is queued, and end."""
        while self._queue:
            await asyncio.sleep(0.005)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self._running, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)

    async def rank(self, version: Version, inputs: Any, k: int, exclude: Sequence[Label] = ()) -> Ranked:
        """The k best labels of some rows. A `Problem` with status 429 refuses them where the queue is full."""
        n_rows = len(inputs) if isinstance(inputs, list) else inputs.shape[0]
        if self.queued_rows + n_rows > self.settings.max_queued_rows and self.queued_rows:
            raise Problem(429, f"{self.queued_rows} rows are waiting; try again later", retry_after=RETRY_SECONDS)
        future: asyncio.Future[Ranked] = asyncio.get_running_loop().create_future()
        rows = Rows(version, inputs, n_rows, k, tuple(exclude), future)
        self._queue.append(rows)
        self.queued_rows += n_rows
        self._arrived.set()
        return await future

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run something else in a thread that predicts, after what it does now."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _dispatch(self) -> None:
        while True:
            await self._arrived.wait()
            await self._free.acquire()
            if self.settings.batch_seconds and self.queued_rows < self.settings.max_batch_rows:
                await asyncio.sleep(self.settings.batch_seconds)
            if batch := self._take():
                task = asyncio.get_running_loop().create_task(self._answer(batch))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            else:
                self._free.release()
            if not self._queue:
                self._arrived.clear()

    async def _answer(self, batch: Sequence[Rows]) -> None:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._threads, self._predict, batch)
        finally:
            self._free.release()
        for rows, result in zip(batch, results, strict=True):
            if rows.future.done():  # its client is gone
                continue
            if isinstance(result, Exception):
                rows.future.set_exception(result)
            else:
                rows.future.set_result(result)

    def _take(self) -> list[Rows]:
        """The oldest request, and those after it that fit into one batch with it."""
        batch: list[Rows] = []
        kept: deque[Rows] = deque()
        n = 0
        while self._queue:
            rows = self._queue.popleft()
            if rows.future.done():
                self.queued_rows -= rows.n_rows
            elif not batch or (rows.key == batch[0].key and n + rows.n_rows <= self.settings.max_batch_rows):
                batch.append(rows)
                n += rows.n_rows
                self.queued_rows -= rows.n_rows
            else:
                kept.append(rows)
        self._queue = kept
        return batch

    def _predict(self, batch: Sequence[Rows]) -> list[Ranked | Exception]:
        """The results of some requests with one key. An error of one request is not an error of the others."""
        try:
            return list(self._predict_together(batch))
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for rows in batch for result in self._predict([rows])]

    def _predict_together(self, batch: Sequence[Rows]) -> Sequence[Ranked]:
        version, model, exclude = batch[0].version, batch[0].version.model, batch[0].exclude
        together = [rows.inputs for rows in batch]
        inputs = [text for texts in together for text in texts] if isinstance(together[0], list) else stack(together)
        examples = model.examples(inputs)
        allowed = allowed_labels(model.n_labels, model.label_names, exclude, None, model.allowed)
        n_allowed = model.n_labels if allowed is None else int(allowed.sum())
        k = max(rows.k for rows in batch)
        ranking = model.rank(examples, min(k, n_allowed), exclude=exclude)
        whole = Ranked(ranking, examples.empty_rows().tolist())
        if self.on_batch is not None:
            self.on_batch(version, inputs, whole, len(batch))
        found, first = [], 0
        for rows in batch:
            part = slice(first, first + rows.n_rows)
            p = ranking.probabilities
            own = Ranking(
                ranking.scores[part, : rows.k], ranking.ids[part, : rows.k], None if p is None else p[part, : rows.k]
            )
            found.append(Ranked(own, whole.empty[part]))
            first += rows.n_rows
        return found


def stack(matrices: Sequence[Any]) -> Any:
    """Rows of several sparse matrices, one after the other."""
    return matrices[0] if len(matrices) == 1 else sparse.csr_array(sparse.vstack(matrices, format="csr"))
