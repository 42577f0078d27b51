"""Text networks with a linear and with holographic heads: documents a second, and what packed sequences cost.

    .venv/bin/python benchmarks/bench_text_networks.py [--part documents packed]

documents  whole training steps (forward, loss, backward, Adam; by rows for embeddings) of FC, XML-CNN and the attention
           LSTM with their default sizes, each with the paper's linear head (BCE) and two holographic ones, at the
           shape of a library catalogue: 17,569 labels, texts of 20 to 500 words, batches of like length. Contenders
           take turns batch by batch; the best of several times with each batch counts.
packed     the LSTM's two directions on padded texts, each turned around within its length, beside torch's packed
           sequences, forward and backward. They take turns; a time is the median over rounds of a round's fastest.

The paper's table of CNN times is `holobind paper speed-cnn`. The last line printed is JSON.
"""

import argparse
import json
import time

import numpy as np
import torch
from holobind_paper.speed import race
from holobind_paper.speed_cnn import HEADS
from rich.console import Console
from rich.table import Table
from torch.nn.utils.rnn import pack_padded_sequence

from holobind.data.batches import Rows, TokenExamples, Tokens, bucketed
from holobind.networks import FC, AttentionLstm, XmlCnn
from holobind.training.optimiser import RowAdam

BATCH, VOCABULARY, ROUNDS = 16, 50_000, 3
CATALOGUE = {"labels": 17_569, "a point": 2.8, "dim": 1024, "batch": 64, "features": 24_459, "words": 100}


def heads(inside, labels, dim):
    return {kind: make(inside, labels, dim) for kind, make in HEADS.items()}


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


def packed():
    """The same two directions, on texts of 50 to 100 words."""
    lengths = torch.linspace(50, 100, BATCH).long()
    batch = Tokens(torch.from_numpy(words(BATCH, 100)).long(), lengths)
    network = AttentionLstm(VOCABULARY)
    both = torch.nn.LSTM(300, 256, batch_first=True, bidirectional=True)

    def torch_packed():
        x = pack_padded_sequence(network.embedding(batch.ids), lengths, batch_first=True, enforce_sorted=False)
        both(x)[0].data.sum().backward()

    timed = race({"turned": lambda: network(batch).sum().backward(), "packed": torch_packed}, ROUNDS)
    milliseconds = {name: round(1e3 * took, 1) for name, took in timed.items()}
    Console().print(f"LSTM, {BATCH} texts of 50 to 100 words, ms: {milliseconds}")
    return {"ms": milliseconds, "packed_is_slower": round(milliseconds["packed"] / milliseconds["turned"], 1)}


def main():
    parts = {"documents": documents, "packed": packed}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=list(parts), choices=list(parts))
    chosen = parser.parse_args().part
    print(json.dumps({"threads": torch.get_num_threads(), **{name: parts[name]() for name in chosen}}))


if __name__ == "__main__":
    main()
