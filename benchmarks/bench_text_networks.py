"""Text networks with a linear and with holographic heads: documents a second, and the paper's table of CNN times.

    .venv/bin/python benchmarks/bench_text_networks.py [--part documents paper packed]

documents  whole training steps (forward, loss, backward, Adam; by rows for embeddings) of FC, XML-CNN and the attention
           LSTM with their default sizes, each with the paper's linear head (BCE) and two holographic ones, at the
           shape of a library catalogue: 17,569 labels, texts of 20 to 500 words, batches of like length. Contenders
           take turns batch by batch; the best of several times with each batch counts.
paper      execution (forward) and optimisation (loss, gradients, update) of XML-CNN at the shapes of the paper's four
           datasets, with its dim. The network is the same for all heads, so that it is timed once for all of them and
           only the heads are timed beside each other. Also prediction: forward without gradient, and the top 5.
packed     the LSTM's two directions on padded texts, each turned around within its length, beside torch's packed
           sequences, forward and backward.

Elsewhere every round runs the contenders in turn, and a time is the median over rounds. The last line printed is JSON.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch
from holobind_paper import published
from rich.console import Console
from rich.table import Table
from torch.nn.utils.rnn import pack_padded_sequence

import holobind as hb
from holobind.networks import FC, AttentionLstm, Rows, TokenExamples, Tokens, XmlCnn
from holobind.networks.inputs import bucketed
from holobind.optimiser import RowAdam

#           labels, labels a point, the paper's dim, words a text: the first 500 of 1249, 2484, 247, 247 on average
DATASETS = {
    "EURLex-4K": (3993, 5.31, 400, 500),
    "Wiki10-31K": (30938, 18.64, 3000, 500),
    "AmazonCat-12K": (13330, 5.04, 3000, 247),
    "Amazon-670K": (670091, 5.45, 3000, 247),
}
BATCH, VOCABULARY, ROUNDS = 16, 50_000, 7
CATALOGUE = {"labels": 17_569, "a point": 2.8, "dim": 1024, "batch": 64, "features": 24_459, "words": 100}


def heads(inside, labels, dim):
    return {
        "linear": hb.LinearHead(inside, labels),
        "query": hb.HolographicHead(inside, labels, dim, loss="query"),
        "softmax": hb.HolographicHead(inside, labels, dim, loss="softmax"),
    }


def sets(labels, mean, rows):
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((rows,), mean), generator).long().clamp(1, labels)
    return torch.randint(labels, (int(counts.sum()),), generator=generator), counts.cumsum(0) - counts


def words(*shape):
    """Of a vocabulary in which the k-th word is about 1 / k as frequent as the first."""
    draw = np.random.default_rng(0)
    return np.exp(draw.uniform(np.log(2), np.log(VOCABULARY), shape)).astype(np.int32)


def optimiser(*modules):
    by_row = [m.weight for top in modules for m in top.modules() if getattr(m, "sparse", False)]
    known = set(map(id, by_row))
    rest = [p for top in modules for p in top.parameters() if id(p) not in known]
    used = [torch.optim.AdamW(rest, fused=True), *([RowAdam(by_row)] if by_row else [])]

    def step():
        for each in used:
            each.step()
            each.zero_grad()

    return step


def race(contenders, rounds=ROUNDS):
    """Median seconds of each, or of each of the parts into which it divides itself."""
    found = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            parts = run()
            if number:  # the first is not counted
                found[name].append(parts or {"": time.perf_counter() - start})
    return {
        name: {part: statistics.median(one[part] for one in times) for part in times[0]}
        for name, times in found.items()
    }


def documents():
    c = CATALOGUE
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(5.0, 0.6, 4096), 20, 500).astype(int)
    texts = TokenExamples(words(lengths.sum()), np.cumsum([0, *lengths]))
    batches = [texts.batch(i) for i in list(bucketed(texts.sizes, np.arange(4096), c["batch"], seed=0))[:6]]
    total = c["batch"] * c["words"]
    ids = torch.from_numpy(draw.integers(c["features"], size=total))
    rows = [Rows(ids, torch.arange(0, total, c["words"]), torch.full((total,), c["words"] ** -0.5))]
    labels, offsets = sets(c["labels"], c["a point"], c["batch"])
    makers = {
        "FC": (lambda: FC(c["features"]), rows * len(batches), 10),
        "CNN": (lambda: XmlCnn(VOCABULARY), batches, 3),
        "LSTM": (lambda: AttentionLstm(VOCABULARY), batches, 3),
    }

    result = {}
    for name, (make, inputs, repeats) in makers.items():
        models = {kind: (make(), head) for kind, head in heads(make().out_features, c["labels"], c["dim"]).items()}
        steps = {kind: optimiser(*both) for kind, both in models.items()}
        took = {kind: np.empty((repeats, len(inputs))) for kind in models}
        for number in range(repeats):
            for at, batch in enumerate(inputs):
                for kind, (network, head) in models.items():
                    start = time.perf_counter()
                    head.loss(network(batch), labels, offsets).backward()
                    steps[kind]()
                    took[kind][number, at] = time.perf_counter() - start
        result[name] = {kind: round(c["batch"] * len(inputs) / t.min(0).sum(), 1) for kind, t in took.items()}
    mean = float(np.mean([batch.lengths.float().mean() for batch in batches]))
    shown = Table("network", "head", "documents a second", title=f"training, {mean:.0f} words a text on average")
    for name, speeds in result.items():
        for kind, speed in speeds.items():
            shown.add_row(name, kind, f"{speed:.1f}")
    Console(width=110).print(shown)
    return result


def network_times(network, batch):
    step = optimiser(network)

    def run():
        start = time.perf_counter()
        h = network(batch)
        forward = time.perf_counter()
        h.backward(torch.ones_like(h))
        step()
        after = time.perf_counter()
        network.eval()
        with torch.inference_mode():
            network(batch)
        end = time.perf_counter()
        network.train()
        return {"execution": forward - start, "optimisation": after - forward, "prediction": end - after}

    return run


def head_times(head, h, labels, offsets):
    step = optimiser(head)

    def run():
        start = time.perf_counter()
        head(h)
        forward = time.perf_counter()
        head.loss(h, labels, offsets).backward()
        step()
        after = time.perf_counter()
        with torch.inference_mode():
            head.top_k(h, 5)
        end = time.perf_counter()
        execution = forward - start  # which `loss` does again
        return {"execution": execution, "optimisation": after - forward - execution, "prediction": end - after}

    return run


def paper():
    told = {(row["dataset"], row["model"]): row for row in published.read("table_cnn_runtime")}
    rows = []
    for name, (labels, mean, dim, length) in DATASETS.items():
        network = XmlCnn(VOCABULARY)
        batch = Tokens(torch.from_numpy(words(BATCH, length)).long(), torch.full((BATCH,), length))
        body = race({"": network_times(network, batch)})[""]
        h = network(batch).detach().requires_grad_()
        chosen = heads(network.out_features, labels, dim)
        timed = race({kind: head_times(head, h, *sets(labels, mean, BATCH)) for kind, head in chosen.items()})
        total = {kind: {part: body[part] + took for part, took in parts.items()} for kind, parts in timed.items()}
        theirs = {
            part: float(told[name, "HRR-CNN"][column]) / float(told[name, "CNN"][column])
            for part, column in (("execution", "execution_s"), ("optimisation", "optimization_s"))
        }
        rows.append(
            {
                "dataset": name,
                "labels": labels,
                "dim": dim,
                "network_ms": {part: round(1e3 * took, 2) for part, took in body.items()},
                "head_ms": {k: {p: round(1e3 * took, 3) for p, took in parts.items()} for k, parts in timed.items()},
                "times_linear": {
                    kind: {part: round(took / total["linear"][part], 3) for part, took in parts.items()}
                    for kind, parts in total.items()
                },
                "paper_times_linear": {part: round(ratio, 3) for part, ratio in theirs.items()},
                "not_slower": {
                    kind: all(took <= total["linear"][part] for part, took in parts.items())
                    for kind, parts in total.items()
                },
            }
        )
    columns = ("execution", "optimisation", "prediction")
    shown = Table("dataset", "head", *(f"{c}, ms" for c in columns), *(f"{c} / linear (paper)" for c in columns[:2]))
    for row in rows:
        for kind, parts in row["head_ms"].items():
            ratios = [f"{row['times_linear'][kind][c]:.3f}" for c in columns[:2]]
            if kind == "query":
                ratios = [f"{r} ({row['paper_times_linear'][c]:.2f})" for r, c in zip(ratios, columns, strict=False)]
            shown.add_row(
                row["dataset"], kind, *(f"{row['network_ms'][c]:.0f} + {parts[c]:.1f}" for c in columns), *ratios
            )
    Console(width=140).print(shown)
    return rows


def packed():
    """The same two directions, on texts of 50 to 100 words."""
    lengths = torch.linspace(50, 100, BATCH).long()
    batch = Tokens(torch.from_numpy(words(BATCH, 100)).long(), lengths)
    network = AttentionLstm(VOCABULARY)
    both = torch.nn.LSTM(300, 256, batch_first=True, bidirectional=True)

    def torch_packed():
        x = pack_padded_sequence(network.embedding(batch.ids), lengths, batch_first=True, enforce_sorted=False)
        both(x)[0].data.sum().backward()

    timed = race({"turned": lambda: network(batch).sum().backward(), "packed": torch_packed}, rounds=3)
    milliseconds = {name: round(1e3 * took[""], 1) for name, took in timed.items()}
    Console().print(f"LSTM, {BATCH} texts of 50 to 100 words, ms: {milliseconds}")
    return {"ms": milliseconds, "packed_is_slower": round(milliseconds["packed"] / milliseconds["turned"], 1)}


def main():
    parts = {"documents": documents, "paper": paper, "packed": packed}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=list(parts), choices=list(parts))
    chosen = parser.parse_args().part
    print(json.dumps({"threads": torch.get_num_threads(), **{name: parts[name]() for name in chosen}}))


if __name__ == "__main__":
    main()
