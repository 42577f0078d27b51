"""The top 5 of L labels, exactly and approximately: time, memory and recall, against L up to a million.

The paper leaves fast inference to future work. Its method compares an output with every label vector; here that is done
by a dense product over stored vectors, with the vectors drawn again block by block (nothing stored), and by the orbit's
inverse FFTs; and by faiss: flat (exact), inverted lists, and the HNSW graph (approximate).

All but `random` hold the vectors of one orbit codebook; `random` has its own. A question is what a good network
gives: the sum of five labels' vectors, and Gaussian noise of the same length. RidgeKnn is the share of the exact top 5,
computed by dense products over blocks, that a method finds. Memory is what it must hold to answer: vectors, lists,
links.
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

D, K, QUESTIONS, BATCH = 400, 5, 128, 16
LABELS = (1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
QUICK = (1_000, 4_000)
BLOCK = 20_000  # labels compared or added at once
ROUNDS, SECONDS = 5, 4.0
BUILDING = 60.0  # the most seconds an index may take to build
EXACT = 0.999  # two labels that score the same to the last digit may change places
Search = Callable[[Tensor], tuple[Tensor, Tensor]]
Method = Callable[[Any], tuple[Search, int] | str]  # from a codebook: how to search, bytes held; or why not


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure every method at every L, one cell each. Without faiss its columns are left out."""
    started = time.monotonic()
    methods: dict[str, Method] = {"dense": dense, "random": random, "orbit": orbit}
    notes = [
        f"Time of one question in batches of {BATCH}, memory held, and recall of the exact top {K} where it is not all "
        f"of it; d = {D}, {QUESTIONS} questions. `random` draws its vectors again for each batch and keeps none. IVF: "
        "sqrt(L) lists, of which a tenth is searched. HNSW: 32 links, 64 candidates. Label vectors are spread evenly, "
        "so that lists and graphs have no structure to follow; that is where their recall goes. An index that takes "
        f"more than {BUILDING:.0f} s to build is left out, there and where there are more labels."
    ]
    try:
        import faiss  # noqa: F401

        methods |= {"faiss flat": faiss_flat, "faiss IVF": faiss_ivf, "faiss HNSW": faiss_hnsw}
    except ImportError:
        notes.append("faiss is not installed and its columns are left out; `make bench-deps` installs it.")
    rounds = 2 if quick else ROUNDS
    rows: list[dict[str, Any]] = []
    for labels in QUICK if quick else LABELS:
        too_slow = {row["model"] for row in rows if "left_out" in row}
        wanted = []
        for name, make in methods.items():
            key = {"labels": labels, "model": name, "dim": D, "seed": seed, "rounds": rounds, "building": BUILDING}
            key |= {"machine": result.machine()}
            if name not in too_slow:
                wanted.append(cells.Cell(key, partial(measure, labels, make, seed, rounds)))
        rows += cells.finish(out, "inference", wanted)
    largest = {row["model"]: row for row in rows if row["labels"] == max(row["labels"] for row in rows)}
    times = {name: row["ms"] for name, row in largest.items() if "ms" in row}
    left_out = [f"{row['model']} at {row['labels']:,}: {row['left_out']}" for row in rows if "left_out" in row]
    return result.save(
        out,
        "inference",
        _draw(rows, list(methods)),
        started,
        seed=seed,
        quick=quick,
        seconds=cells.seconds(rows),
        title="Inference (the paper's future work)",
        summary=f"at {largest['orbit']['labels']:,} labels the orbit answers exactly, "
        f"{times['dense'] / times['orbit']:.0f} times as fast as the dense product, with "
        f"{_megabytes(largest['orbit']['bytes'])} MB in place of {_megabytes(largest['dense']['bytes'])} MB",
        notes=[*notes, *(["Left out: " + "; ".join(left_out) + "."] if left_out else [])],
        table=_table(rows, list(methods)),
        rows=rows,
    )


def measure(labels: int, make: Method, seed: int, rounds: int) -> dict[str, Any]:
    """Of one method: milliseconds a question, bytes held, seconds to build and recall; or why it is left out."""
    book = (hb.RandomCodebook if make is random else hb.OrbitCodebook)(labels, D, seed)
    questions = ask(book, result.generator(seed, labels))
    truth = exact(book, questions)
    began = time.perf_counter()
    made = make(book)
    building = time.perf_counter() - began
    if isinstance(made, str):
        return {"left_out": made, "building_seconds": building}
    search, held = made
    times: list[float] = []
    found: list[Tensor] = []
    parts = questions.split(BATCH)
    while len(times) < len(parts) or (len(times) < rounds * len(parts) and sum(times) < SECONDS):
        began = time.perf_counter()
        _, ids = search(parts[len(times) % len(parts)])
        times.append(time.perf_counter() - began)
        found.append(ids)
    right = torch.cat(found[: len(parts)])[:, :, None] == truth[:, None, :]
    milliseconds = 1e3 * statistics.median(times) / BATCH
    recall = float(right.any(1).float().mean())
    return {"ms": milliseconds, "bytes": held, "building_seconds": building, "knn_weight": recall}


def ask(book: hb.Codebook, generator: torch.Generator) -> Tensor:
    """Sums of five labels' vectors, and noise as long as they are.  Shapes: -> (questions, d)"""
    chosen = torch.randint(book.n_labels, (QUESTIONS, K), generator=generator)
    sums = book.encode(chosen.flatten(), torch.arange(QUESTIONS) * K)
    noise = torch.randn(QUESTIONS, book.dim, generator=generator)
    return sums + noise * (sums.norm(dim=1) / noise.norm(dim=1))[:, None]


def exact(book: hb.Codebook, questions: Tensor) -> Tensor:
    """The top 5 by dense products with a block of vectors at a time, the slow and obvious way."""
    best, ids = torch.empty(len(questions), 0), torch.empty(len(questions), 0, dtype=torch.long)
    for block in torch.arange(book.n_labels).split(BLOCK):
        scores = torch.cat([best, questions @ book.vectors(block).T], 1)
        labels = torch.cat([ids, block.expand(len(questions), -1)], 1)
        best, order = scores.topk(K, dim=1)
        ids = labels.gather(1, order)
    return ids


def dense(book: hb.Codebook) -> tuple[Search, int]:
    """A product with all stored vectors."""
    table = _stored(book)
    return lambda v: (v @ table.T).topk(K), table.nbytes


def random(book: hb.Codebook) -> tuple[Search, int]:
    """The paper's vectors, drawn again from their seed, block by block."""
    return lambda v: book.top_k(v, K), 0


def orbit(book: hb.OrbitCodebook) -> tuple[Search, int]:
    """One inverse FFT for each base vector."""
    return lambda v: book.top_k(v, K), book._readers.nbytes


def faiss_flat(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    return _faiss(faiss.IndexFlatIP(D), book)


def faiss_ivf(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    lists = round(book.n_labels**0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(D), D, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.min_points_per_centroid, index.nprobe = 10, 1, max(1, lists // 10)
    some = torch.randperm(book.n_labels, generator=torch.Generator().manual_seed(0))[: 64 * lists]
    index.train(book.vectors(some).numpy())
    return _faiss(index, book)


def faiss_hnsw(book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    index = faiss.IndexHNSWFlat(D, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 64, 64
    return _faiss(index, book)


def _faiss(index: Any, book: hb.Codebook) -> tuple[Search, int] | str:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    began = time.perf_counter()
    for ids in torch.arange(book.n_labels).split(min(BLOCK, 2_000)):
        if time.perf_counter() - began > BUILDING:
            return f"after {BUILDING:.0f} s the index held {index.ntotal:,} of {book.n_labels:,} labels"
        index.add(book.vectors(ids).numpy())
    held = 0

    def count(written: bytes) -> int:
        nonlocal held
        held += len(written)
        return len(written)

    faiss.write_index(index, faiss.PyCallbackIOWriter(count))

    def search(v: Tensor) -> tuple[Tensor, Tensor]:
        scores, ids = index.search(v.numpy(), K)
        return torch.from_numpy(scores), torch.from_numpy(ids)

    return search, held


def _stored(book: hb.Codebook) -> Tensor:
    table = torch.empty(book.n_labels, book.dim)
    for ids in torch.arange(book.n_labels).split(BLOCK):
        table[ids[0] : ids[-1] + 1] = book.vectors(ids)
    return table


def _megabytes(held: int) -> str:
    return f"{held / 1e6:,.0f}" if held >= 1e8 else f"{held / 1e6:.2g}"


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
            line.append(shown + (f", recall {row['recall']:.2f}" if row["recall"] < EXACT else ""))
        lines.append(line)
    return result.table(header, lines)


def _draw(rows: list[dict[str, Any]], methods: list[str]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for place, name in enumerate(methods):
        curve = [row for row in rows if row["model"] == name and "ms" in row]
        labels = [row["labels"] for row in curve]
        for axes, values in zip(
            panels,
            (
                [row["ms"] for row in curve],
                [row["bytes"] / 1e6 or None for row in curve],  # nothing has no place on a log axis
                [row["recall"] for row in curve],
            ),
            strict=True,
        ):
            axes.plot(labels, values, f"C{place}o-", ms=3, label=name)
    titles = "ms a question", "MB held (random: none)", f"recall of the exact top {K}"
    for axes, title in zip(panels, titles, strict=True):
        axes.set_xscale("log")
        axes.set(xlabel="labels L", title=title)
    panels[0].set_yscale("log")
    panels[1].set_yscale("log")
    panels[2].set_ylim(0, 1.05)
    panels[0].legend(fontsize=8)
    return figure
