"""The top 5 of L labels, exact and approximate: time, memory and recall for L up to a million.

The paper leaves fast inference to future work. Its method compares an output with every label vector. The exact methods
here are a dense product with stored vectors, the same with vectors drawn again block by block (nothing is stored), the
inverse FFTs of the orbit codebook, and the flat index of faiss. The approximate methods are the inverted lists (IVF)
and the HNSW graph of faiss.

All methods but `random` search the vectors of one orbit codebook; `random` has a codebook of its own. A query is a
typical output of a good network: the sum of five labels' vectors, plus Gaussian noise of the same length. Recall is the
fraction of the exact top 5, computed by dense products over blocks, that a method finds. Memory is what a method stores
to answer queries: vectors, lists, links.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import holobind as hb
from holobind_paper import cells, result

DIM, K, QUERIES, BATCH_SIZE = 400, 5, 128, 16
LABELS = (1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
QUICK_LABELS = (1_000, 4_000)
LABELS_PER_BLOCK = 20_000  # labels that are compared or stored at once
ROUNDS, QUICK_ROUNDS = 5, 2  # passes over all queries
MAX_SECONDS = 4.0  # of all timed batches of one method, beyond the first pass
MAX_BUILD_SECONDS = 60.0  # an index that takes longer is left out
EXACT_RECALL = 0.999  # two labels with equal scores may change places
Search = Callable[[Tensor], tuple[Tensor, Tensor]]
Method = Callable[[Any], tuple[Search, int] | str]  # from a codebook: the search and its bytes, or why there is none


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure every method at every L, one cell each. Without faiss its columns are missing."""
    started = time.monotonic()
    methods: dict[str, Method] = {"dense": dense, "random": random, "orbit": orbit}
    notes = [
        f"A cell has the time of one query in batches of {BATCH_SIZE}, the memory of the method, and its recall of the "
        f"exact top {K} where that is below 1; d = {DIM}, {QUERIES} queries. `random` draws its vectors again for each "
        "batch and stores none. IVF has sqrt(L) lists and searches a tenth of them. HNSW has 32 links and 64 "
        "candidates. Label vectors are spread evenly on the sphere, so they have no clusters that lists or graphs "
        f"could use; hence the low recall. An index that takes more than {MAX_BUILD_SECONDS:.0f} s to build is left "
        "out for this and all larger numbers of labels."
    ]
    try:
        import faiss  # noqa: F401

        methods |= {"faiss flat": faiss_flat, "faiss IVF": faiss_ivf, "faiss HNSW": faiss_hnsw}
    except ImportError:
        notes.append("faiss is not installed, so its columns are missing; `make bench-deps` installs it.")
    rounds = QUICK_ROUNDS if quick else ROUNDS
    rows: list[dict[str, Any]] = []
    for labels in QUICK_LABELS if quick else LABELS:
        too_slow = {row["model"] for row in rows if "left_out" in row}
        wanted = []
        for name, make in methods.items():
            key = {"labels": labels, "model": name, "dim": DIM, "seed": seed, "rounds": rounds}
            key |= {"max_build_seconds": MAX_BUILD_SECONDS, "machine": result.machine()}
            if name not in too_slow:
                wanted.append(cells.Cell(key, partial(measure, labels, make, seed, rounds)))
        rows += cells.finish(out, "inference", wanted)
    largest = {row["model"]: row for row in rows if row["labels"] == max(row["labels"] for row in rows)}
    times = {name: row["ms"] for name, row in largest.items() if "ms" in row}
    left_out = [f"{row['model']} at {row['labels']:,}: {row['left_out']}" for row in rows if "left_out" in row]
    return result.save(
        out,
        "inference",
        draw(rows),
        started,
        seed=seed,
        quick=quick,
        seconds=cells.seconds(rows),
        title="Inference (the paper's future work)",
        summary=f"at {largest['orbit']['labels']:,} labels the orbit codebook is exact and "
        f"{times['dense'] / times['orbit']:.0f} times as fast as the dense product, with "
        f"{_megabytes(largest['orbit']['bytes'])} MB instead of {_megabytes(largest['dense']['bytes'])} MB",
        notes=[*notes, *(["Left out: " + "; ".join(left_out) + "."] if left_out else [])],
        table=_table(rows, list(methods)),
        rows=rows,
    )


def measure(labels: int, make: Method, seed: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per query, bytes, seconds to build and recall of one method; or why it is left out."""
    book = (hb.RandomCodebook if make is random else hb.OrbitCodebook)(labels, DIM, seed)
    queries = make_queries(book, result.generator(seed, labels))
    truth = exact(book, queries)
    began = time.perf_counter()
    made = make(book)
    build_seconds = time.perf_counter() - began
    if isinstance(made, str):
        return {"left_out": made, "build_seconds": build_seconds}
    search, stored_bytes = made
    times: list[float] = []
    found: list[Tensor] = []
    batches = queries.split(BATCH_SIZE)
    while len(times) < len(batches) or (len(times) < rounds * len(batches) and sum(times) < MAX_SECONDS):
        began = time.perf_counter()
        _, ids = search(batches[len(times) % len(batches)])
        times.append(time.perf_counter() - began)
        found.append(ids)
    equal = torch.cat(found[: len(batches)])[:, :, None] == truth[:, None, :]
    milliseconds = 1e3 * statistics.median(times) / BATCH_SIZE
    recall = float(equal.any(1).float().mean())
    return {"ms": milliseconds, "bytes": stored_bytes, "build_seconds": build_seconds, "recall": recall}


def make_queries(book: hb.Codebook, generator: torch.Generator) -> Tensor:
    """Sums of five labels' vectors, plus noise of the same length.  Shapes: -> (queries, d)"""
    labels = torch.randint(book.n_labels, (QUERIES, K), generator=generator)
    sums = book.encode(labels.flatten(), torch.arange(QUERIES) * K)
    noise = torch.randn(QUERIES, book.dim, generator=generator)
    return sums + noise * (sums.norm(dim=1) / noise.norm(dim=1))[:, None]


def exact(book: hb.Codebook, queries: Tensor) -> Tensor:
    """The top 5 by dense products with one block of vectors after the other: slow and simple."""
    best, ids = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
    for block in torch.arange(book.n_labels).split(LABELS_PER_BLOCK):
        scores = torch.cat([best, queries @ book.vectors(block).T], 1)
        labels = torch.cat([ids, block.expand(len(queries), -1)], 1)
        best, order = scores.topk(K, dim=1)
        ids = labels.gather(1, order)
    return ids


def dense(book: hb.Codebook) -> tuple[Search, int]:
    """A product with all stored vectors."""
    table = _stored(book)
    return lambda v: (v @ table.T).topk(K), table.nbytes


def random(book: hb.Codebook) -> tuple[Search, int]:
    """The paper's random vectors, drawn again from their seed block by block."""
    return lambda v: book.top_k(v, K), 0


def orbit(book: hb.OrbitCodebook) -> tuple[Search, int]:
    """One inverse FFT for each base vector."""
    return lambda v: book.top_k(v, K), book._drawn_conj_spectra.nbytes


def faiss_flat(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    return _faiss(faiss.IndexFlatIP(DIM), book)


def faiss_ivf(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    lists = round(book.n_labels**0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.min_points_per_centroid, index.nprobe = 10, 1, max(1, lists // 10)
    sample = torch.randperm(book.n_labels, generator=torch.Generator().manual_seed(0))[: 64 * lists]
    index.train(book.vectors(sample).numpy())
    return _faiss(index, book)


def faiss_hnsw(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    index = faiss.IndexHNSWFlat(DIM, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 64, 64
    return _faiss(index, book)


def _faiss(index: Any, book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    began = time.perf_counter()
    for ids in torch.arange(book.n_labels).split(min(LABELS_PER_BLOCK, 2_000)):
        if time.perf_counter() - began > MAX_BUILD_SECONDS:
            return f"after {MAX_BUILD_SECONDS:.0f} s the index held {index.ntotal:,} of {book.n_labels:,} labels"
        index.add(book.vectors(ids).numpy())
    index_bytes = 0

    def count(written: bytes) -> int:
        nonlocal index_bytes
        index_bytes += len(written)
        return len(written)

    faiss.write_index(index, faiss.PyCallbackIOWriter(count))

    def search(v: Tensor) -> tuple[Tensor, Tensor]:
        scores, ids = index.search(v.numpy(), K)
        return torch.from_numpy(scores), torch.from_numpy(ids)

    return search, index_bytes


def _stored(book: hb.Codebook) -> Tensor:
    table = torch.empty(book.n_labels, book.dim)
    for ids in torch.arange(book.n_labels).split(LABELS_PER_BLOCK):
        table[ids[0] : ids[-1] + 1] = book.vectors(ids)
    return table


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.0f}" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2g}"


def _table(rows: list[dict[str, Any]], methods: list[str]) -> list[list[str]]:
    header = ["labels", *methods]
    lines = []
    for labels in dict.fromkeys(row["labels"] for row in rows):
        line = [f"{labels:,}"]
        here = {row["model"]: row for row in rows if row["labels"] == labels}
        for row in (here.get(name, {"left_out": ""}) for name in methods):
            if "left_out" in row:
                line.append("left out")
                continue
            shown = f"{row['ms']:.3g} ms, {_megabytes(row['bytes'])} MB"
            line.append(shown + (f", recall {row['recall']:.2f}" if row["recall"] < EXACT_RECALL else ""))
        lines.append(line)
    return result.table(header, lines)


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for place, name in enumerate(dict.fromkeys(row["model"] for row in rows)):
        curve = [row for row in rows if row["model"] == name and "ms" in row]
        labels = [row["labels"] for row in curve]
        for axes, values in zip(
            panels,
            (
                [row["ms"] for row in curve],
                [row["bytes"] / 1e6 or None for row in curve],  # a log axis has no 0
                [row["recall"] for row in curve],
            ),
            strict=True,
        ):
            axes.plot(labels, values, f"C{place}o-", ms=3, label=name)
    names = "time of one query, ms", "memory, MB (random stores nothing)", f"recall of the exact top {K}, fraction"
    for axes, name in zip(panels, names, strict=True):
        axes.set_xscale("log")
        axes.set(xlabel="L, number of labels", ylabel=name)
    figure.suptitle(f"Search for the top {K} labels, d = {DIM}")
    panels[0].set_yscale("log")
    panels[1].set_yscale("log")
    panels[2].set_ylim(0, 1.05)
    panels[0].legend(fontsize=8)
    return figure
