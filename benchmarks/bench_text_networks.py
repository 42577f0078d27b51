"""Text networks with linear and holographic heads: documents a second in training; padded against packed sequences.

    .venv/bin/python benchmarks/bench_text_networks.py [--only documents packed]

documents  whole training steps (forward, loss, backward, Adam; row-wise for embeddings) of FC, XML-CNN and the
           attention LSTM with their default sizes, each with the paper's linear head (BCE) and two holographic ones, at
           the sizes of a library catalogue: 17,569 labels, texts of 20 to 500 words, batches of similar length. The
           heads take turns batch by batch; for each batch the fastest of several steps counts.
packed     the LSTM's two directions on padded texts, where the backward direction reverses each text within its
           length, against torch's packed sequences, forward and backward pass. They take turns; a time is the median
           over rounds of the fastest call in a round.

The paper's table of CNN times is `holobind paper speed-cnn`. The last line printed is JSON.
"""

import argparse
import json
import time

import numpy as np
import torch
from holobind_paper.speed import step_seconds
from holobind_paper.speed_cnn import HEADS
from rich.console import Console
from rich.table import Table
from torch.nn.utils.rnn import pack_padded_sequence

from holobind.data.batches import SparseBatch, TokenBatch, TokenExamples, length_buckets
from holobind.networks import FC, AttentionLstm, XmlCnn
from holobind.training.optimiser import RowAdam

BATCH, VOCAB_SIZE, ROUNDS = 16, 50_000, 3
CATALOGUE = {"labels": 17_569, "labels a row": 2.8, "dim": 1024, "batch": 64, "features": 24_459, "features a row": 100}


def make_heads(in_features, labels, dim):
    return {kind: make(in_features, labels, dim) for kind, make in HEADS.items()}


def label_sets(labels, mean, rows):
    """Random ragged label sets with a mean number of labels a row: (labels, offsets)."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((rows,), mean), generator).long().clamp(1, labels)
    return torch.randint(labels, (int(counts.sum()),), generator=generator), counts.cumsum(0) - counts


def token_ids(*shape):
    """Token ids by Zipf's law: the k-th token is about 1 / k as frequent as the first."""
    draw = np.random.default_rng(0)
    return np.exp(draw.uniform(np.log(2), np.log(VOCAB_SIZE), shape)).astype(np.int32)


def make_step(*modules):
    """A function that makes one step of AdamW (dense parameters) and RowAdam (sparse ones)."""
    sparse = [m.weight for top in modules for m in top.modules() if getattr(m, "sparse", False)]
    sparse_ids = set(map(id, sparse))
    rest = [p for top in modules for p in top.parameters() if id(p) not in sparse_ids]
    optimisers = [torch.optim.AdamW(rest, fused=True), *([RowAdam(sparse)] if sparse else [])]

    def step():
        for each in optimisers:
            each.step()
            each.zero_grad()

    return step


def documents():
    """Documents a second in training, by network and head."""
    c = CATALOGUE
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(5.0, 0.6, 4096), 20, 500).astype(int)
    texts = TokenExamples(token_ids(lengths.sum()), np.cumsum([0, *lengths]))
    batches = [texts.batch(i) for i in list(length_buckets(texts.sizes, np.arange(4096), c["batch"], seed=0))[:6]]
    each = c["features a row"]
    total = c["batch"] * each
    ids = torch.from_numpy(draw.integers(c["features"], size=total))
    rows = [SparseBatch(ids, torch.arange(0, total, each), torch.full((total,), each**-0.5))]
    labels, offsets = label_sets(c["labels"], c["labels a row"], c["batch"])
    makers = {
        "FC": (lambda: FC(c["features"]), rows * len(batches), 10),
        "CNN": (lambda: XmlCnn(VOCAB_SIZE), batches, 3),
        "LSTM": (lambda: AttentionLstm(VOCAB_SIZE), batches, 3),
    }

    result = {}
    for name, (make, inputs, repeats) in makers.items():
        models = {kind: (make(), head) for kind, head in make_heads(make().out_features, c["labels"], c["dim"]).items()}
        steps = {kind: make_step(*both) for kind, both in models.items()}
        seconds = {kind: np.empty((repeats, len(inputs))) for kind in models}
        for repeat in range(repeats):
            for at, batch in enumerate(inputs):
                for kind, (network, head) in models.items():
                    start = time.perf_counter()
                    head.loss(network(batch), labels, offsets).backward()
                    steps[kind]()
                    seconds[kind][repeat, at] = time.perf_counter() - start
        result[name] = {kind: round(c["batch"] * len(inputs) / t.min(0).sum(), 1) for kind, t in seconds.items()}
    mean = float(np.mean([batch.lengths.float().mean() for batch in batches]))
    shown = Table("network", "head", "documents a second", title=f"training, {mean:.0f} words a text on average")
    for name, speeds in result.items():
        for kind, speed in speeds.items():
            shown.add_row(name, kind, f"{speed:.1f}")
    Console(width=110).print(shown)
    return result


def packed():
    """Milliseconds of the two directions on padded and on packed texts of 50 to 100 words."""
    lengths = torch.linspace(50, 100, BATCH).long()
    batch = TokenBatch(torch.from_numpy(token_ids(BATCH, 100)).long(), lengths)
    network = AttentionLstm(VOCAB_SIZE)
    both = torch.nn.LSTM(300, 256, batch_first=True, bidirectional=True)

    def torch_packed():
        x = pack_padded_sequence(network.embedding(batch.ids), lengths, batch_first=True, enforce_sorted=False)
        both(x)[0].data.sum().backward()

    timed = step_seconds({"padded": lambda: network(batch).sum().backward(), "packed": torch_packed}, ROUNDS)
    milliseconds = {name: round(1e3 * took, 1) for name, took in timed.items()}
    Console().print(f"LSTM, {BATCH} texts of 50 to 100 words, ms: {milliseconds}")
    return {"ms": milliseconds, "packed / padded": round(milliseconds["packed"] / milliseconds["padded"], 1)}


def main():
    measurements = {"documents": documents, "packed": packed}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(measurements), choices=list(measurements))
    chosen = parser.parse_args().only
    print(json.dumps({"threads": torch.get_num_threads(), **{name: measurements[name]() for name in chosen}}))


if __name__ == "__main__":
    main()
