"""Metrics in Prometheus' text format: requests, latency, batches, memory, unknown words and label drift."""

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holobind.data.analyzers import normal_form, word_spans
from holobind.serve.batching import Ranked
from holobind.serve.registry import Registry, Version

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
N_GROUPS = 16  # of labels, by their frequency in training
DRIFT_ROWS = 1000  # rows after which an older row counts 1/e
MAX_SAMPLED_CHARACTERS = 2000  # of one text a batch, whose words are looked up
PAGE_BYTES = 4096
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts of values up to some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> Iterable[str]:
        so_far = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{{labels}{"," if labels else ""}le="{bound}"}} {so_far}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.total:.6f}"
        yield f"{name}_count{braces} {so_far}"


class Drift:
    """How far the predicted labels of recent rows are from the labels of training.

    Labels are divided into groups of equal share in training, the frequent ones first. Drift is half the sum of
    |share predicted - share in training| over the groups: 0 if equal, 1 if disjoint. A ranking prefers frequent labels,
    so that its level says little; its changes do.
    """

    def __init__(self, counts: "np.ndarray[Any, Any]") -> None:
        order = np.argsort(-counts, kind="stable")
        before = np.cumsum(counts[order]) - counts[order]
        group = np.minimum(before * N_GROUPS // max(int(counts.sum()), 1), N_GROUPS - 1).astype(np.int64)
        self.group = np.empty(len(counts), np.int64)
        self.group[order] = group
        shares = np.bincount(self.group, counts, N_GROUPS)
        self.expected = shares / max(shares.sum(), 1)
        self.seen = np.zeros(N_GROUPS)

    def add(self, labels: "np.ndarray[Any, Any]") -> None:
        """Add the best labels of some rows.  Shapes: (rows)"""
        self.seen *= np.exp(-len(labels) / DRIFT_ROWS)
        self.seen += np.bincount(self.group[labels], minlength=N_GROUPS)

    @property
    def value(self) -> float:
        total = self.seen.sum()
        return float(0.5 * np.abs(self.seen / total - self.expected).sum()) if total else 0.0


class ModelMetrics:
    """Metrics of one version of a model."""

    def __init__(self, version: Version) -> None:
        model = version.model
        self.drift = Drift(np.asarray(model.frequencies.counts))
        words = getattr(model.tfidf, "words", None) if model.tfidf is not None else None
        self.words = frozenset(words) if words else None
        self.n_words = self.n_unknown = 0

    def add_text(self, text: str) -> None:
        """Look up the words at the beginning of a text."""
        if self.words is None:
            return
        text = text[:MAX_SAMPLED_CHARACTERS]
        words = [normal_form(text[first:last]) for first, last in word_spans(text)]
        known = sum(word in self.words or f"{word[:4]}*" in self.words for word in words)
        self.n_words += len(words)
        self.n_unknown += len(words) - known


class Metrics:
    """All metrics of a server. Handlers and the thread that predicts add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.began = time.time()
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.latency: dict[str, Histogram] = defaultdict(lambda: Histogram(LATENCY_BUCKETS))
        self.batch_rows, self.batch_requests = Histogram(ROW_BUCKETS), Histogram(ROW_BUCKETS)
        self.rows: dict[str, int] = defaultdict(int)
        self.empty_rows: dict[str, int] = defaultdict(int)
        self.models: dict[str, tuple[str, ModelMetrics]] = {}
        self.running = 0

    def add_request(self, route: str, method: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[route, method, status] += 1
            self.latency[route].add(seconds)

    def add_batch(self, version: Version, inputs: Any, ranked: Ranked, n_requests: int) -> None:
        """Called after each batch, in the thread that predicts."""
        digest, own = self.models.get(version.id, ("", None))
        if own is None or digest != version.digest:
            own = ModelMetrics(version)
        with self._lock:
            self.models[version.id] = version.digest, own
            self.batch_rows.add(len(ranked.empty))
            self.batch_requests.add(n_requests)
            self.rows[version.id] += len(ranked.empty)
            self.empty_rows[version.id] += sum(ranked.empty)
            if isinstance(inputs, list) and inputs:
                own.add_text(inputs[0])
            own.drift.add(ranked.ranking.ids[~np.asarray(ranked.empty, bool), 0])

    def text(self, registry: Registry, queued_rows: int) -> str:
        """The page `/metrics`."""
        with self._lock:
            return "\n".join(self._lines(registry, queued_rows)) + "\n"

    def _lines(self, registry: Registry, queued_rows: int) -> Iterable[str]:
        yield from header("holobind_requests_total", "counter", "Requests by route, method and status.")
        for (route, method, status), count in sorted(self.requests.items()):
            yield f'holobind_requests_total{{route="{route}",method="{method}",status="{status}"}} {count}'
        yield from header("holobind_request_seconds", "histogram", "Seconds from a request to the end of its answer.")
        for route, histogram in sorted(self.latency.items()):
            yield from histogram.lines("holobind_request_seconds", f'route="{route}"')
        yield from header("holobind_batch_rows", "histogram", "Rows of a batch.")
        yield from self.batch_rows.lines("holobind_batch_rows")
        yield from header("holobind_batch_requests", "histogram", "Requests of a batch.")
        yield from self.batch_requests.lines("holobind_batch_requests")
        yield from header("holobind_queued_rows", "gauge", "Rows that wait for a batch.")
        yield f"holobind_queued_rows {queued_rows}"
        yield from header("holobind_running_requests", "gauge", "Requests that run now.")
        yield f"holobind_running_requests {self.running}"
        by_model: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
            ("rows_total", "counter", "Rows that got labels.", self.rows),
            ("rows_without_known_word_total", "counter", "Rows without any known word or feature.", self.empty_rows),
            ("words_total", "counter", "Words looked up: of one text a batch.", self._each("n_words")),
            ("unknown_words_total", "counter", "Words that the model does not know.", self._each("n_unknown")),
            ("label_drift", "gauge", "Distance of predicted labels from training, 0 to 1.", self._drift()),
            ("labels", "gauge", "Labels of the model.", {s.id: s.current.model.n_labels for s in registry}),
            ("learned_documents", "gauge", "Documents of the journal that the model has.", self.learned(registry)),
            (
                "model_modified_seconds",
                "gauge",
                "Time of the model file.",
                {s.id: s.current.modified.timestamp() for s in registry},
            ),
        )
        for name, kind, text, values in by_model:
            yield from header(f"holobind_{name}", kind, text)
            for model, value in sorted(values.items()):
                yield f'holobind_{name}{{model="{model}"}} {value}'
        yield from header("process_resident_memory_bytes", "gauge", "Memory of the process.")
        yield f"process_resident_memory_bytes {resident_bytes()}"
        yield from header("process_start_time_seconds", "gauge", "Start of the process.")
        yield f"process_start_time_seconds {self.began:.3f}"

    @staticmethod
    def learned(registry: Registry) -> dict[str, int]:
        return {served.id: served.current.learned_documents for served in registry}

    def _each(self, attribute: str) -> dict[str, int]:
        return {name: getattr(own, attribute) for name, (_, own) in self.models.items()}

    def _drift(self) -> dict[str, str]:
        return {name: f"{own.drift.value:.4f}" for name, (_, own) in self.models.items()}


def header(name: str, kind: str, text: str) -> tuple[str, str]:
    """The lines before a metric."""
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
