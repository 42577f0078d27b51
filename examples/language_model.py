"""A language model with a large vocabulary on the standard library's own text, by four output layers.

    OMP_NUM_THREADS=1 python examples/language_model.py [--small] [--seconds 60] [--vocab 20000]

Text: comments, docstrings and code of the installed standard library, cut into words; a hash splits the files into
train and test. The body is a GRU. Each output layer trains for the same time of the processor, so that a busy machine
favours none; with one thread, that is the time of an idle machine:

    linear              nn.Embedding and nn.Linear
    linear, tied        one table for both
    holographic         nn.Embedding and HolographicHead
    holographic, tied   CodebookEmbedding of the head's codebook: neither input nor output has a table

Label vectors are fixed, those of a linear layer are learned: at equal numbers of steps the linear layers have the lower
perplexity. A holographic head pays where steps are dear or weights are.
"""

import argparse
import hashlib
import json
import math
import re
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import holobind as hb

WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
UNKNOWN = 0


def corpus(vocab: int, max_files: int) -> tuple[Tensor, Tensor, int]:
    """Word ids of the train and the test files, most frequent word first, and the size of the vocabulary."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [p for p in sorted(root.rglob("*.py")) if not {"site-packages", "test", "tests"} & set(p.parts)][:max_files]
    parts: dict[bool, list[str]] = {False: [], True: []}
    for path in files:
        held_out = hashlib.blake2b(path.relative_to(root).as_posix().encode()).digest()[0] < 26  # about a tenth
        parts[held_out] += WORD.findall(path.read_text(encoding="utf-8", errors="replace"))
    names = ["<unknown>", *(word for word, _ in Counter(parts[False]).most_common(vocab - 1))]
    ids = {word: i for i, word in enumerate(names)}
    train, test = (torch.tensor([ids.get(word, UNKNOWN) for word in parts[key]]) for key in (False, True))
    return train, test, len(names)


class LanguageModel(nn.Module):
    """An embedding, a GRU and an output layer."""

    def __init__(self, kind: str, vocab: int, width: int, counts: Tensor) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)
        self.embedding: nn.Module = nn.Embedding(vocab, width)
        self.head: Any
        if kind.startswith("linear"):
            self.head = nn.Linear(width, vocab)
            if kind.endswith("tied"):
                nn.init.normal_(self.embedding.weight, std=width**-0.5)
                self.head.weight = self.embedding.weight
        else:
            self.head = hb.HolographicHead(width, vocab, width)
            self.head.set_prior(counts)  # without it, the rank of the logits is spent on word frequencies
            if kind.endswith("tied"):
                self.embedding = hb.CodebookEmbedding(self.head.codebook)
        self.input = nn.Linear(width, width) if kind == "holographic, tied" else nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        return self.gru(self.input(self.embedding(ids)))[0]

    def loss(self, ids: Tensor) -> Tensor:
        """The mean cross-entropy of each next word; while a holographic head trains, with its crosstalk penalty."""
        h, y = self(ids[:, :-1]), ids[:, 1:]
        if isinstance(self.head, hb.HolographicHead):
            return self.head.loss(h, y)
        return cross_entropy(self.head(h).flatten(0, 1), y.flatten())


def rows_of(ids: Tensor, length: int) -> Tensor:
    return ids[: len(ids) // (length + 1) * (length + 1)].view(-1, length + 1)


def train(model: LanguageModel, rows: Tensor, seconds: float, max_steps: int | None) -> tuple[int, float]:
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    began, steps = time.process_time(), 0
    while True:
        for chosen in torch.randperm(len(rows)).split(32):
            optimiser.zero_grad()
            model.loss(rows[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            steps += 1
            elapsed = time.process_time() - began
            if elapsed > seconds if max_steps is None else steps >= max_steps:
                return steps, elapsed


@torch.no_grad()
def perplexity(model: LanguageModel, rows: Tensor) -> float:
    losses = [model.loss(part).item() * len(part) for part in rows.split(32)]
    return math.exp(sum(losses) / len(rows))


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, for each output layer")
    parser.add_argument("--steps", type=int, help="train for so many steps instead")
    parser.add_argument("--vocab", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args(arguments)
    vocab, width, length, files = (500, 32, 12, 8) if args.small else (args.vocab, args.width, 32, 100_000)
    train_ids, test_ids, vocab = corpus(vocab, files)
    train_rows, test_rows = rows_of(train_ids, length), rows_of(test_ids if len(test_ids) > 500 else train_ids, length)
    test_rows = test_rows[: 60 if args.small else 1000]
    results = {}
    for kind in ("linear", "linear, tied", "holographic", "holographic, tied"):
        torch.manual_seed(0)
        model = LanguageModel(kind, vocab, width, train_ids.bincount(minlength=vocab))
        steps, seconds = train(model.train(), train_rows, args.seconds, 15 if args.small else args.steps)
        weights = sum(p.numel() for p in model.parameters())
        found = {"perplexity": round(perplexity(model.eval(), test_rows), 1), "steps": steps, "weights": weights}
        results[kind] = found | {"processor seconds": round(seconds, 1)}
        print(kind, results[kind], flush=True)
    return {"vocabulary": vocab, "train words": len(train_ids), "width": width, "results": results}


if __name__ == "__main__":
    print(json.dumps(main()))
