"""Next-item recommendation: a SASRec-style transformer with a full softmax over all items, by three output layers.

    OMP_NUM_THREADS=1 python examples/next_item.py [--small] [--seconds 60]
    python examples/next_item.py --movielens ml-1m/ratings.dat

Sequences: the names that a Python function calls, in order of the source (installed packages), or the films that a user
of MovieLens-1M has rated, in order of time, if you have the file. The last item of a sequence is for the test, the one
before for choosing options. Films that a user has rated before are excluded from the ranking; calls repeat. Each output
layer trains for the same time of the processor, so that a busy machine favours none; with one thread, that is the time
of an idle machine:

    linear, full       nn.Linear and cross-entropy over all items
    linear, sampled    nn.Linear and cross-entropy over the positive and 256 random items
    holographic        HolographicHead with the frequency prior; its codebook is also the input embedding
"""

import argparse
import ast
import importlib.util
import json
import sysconfig
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import holobind as hb

PADDING = -100
NEGATIVES = 256
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# Sequences


def calls_in_order(source: bytes) -> Iterator[list[str]]:
    """The names that each function of a module calls, in order of the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            found = [
                ((inner.end_lineno or 0, inner.end_col_offset or 0), getattr(inner.func, "attr", None) or inner.func.id)
                for inner in own_nodes(node)
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute | ast.Name)
            ]
            yield [name for _, name in sorted(found)]


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it: these are sequences of their own."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from own_nodes(child)


def python_sequences(packages: list[str], max_files: int) -> list[list[str]]:
    roots = [Path(sysconfig.get_path("stdlib"))]
    for package in packages:
        spec = importlib.util.find_spec(package)
        roots += [] if spec is None or spec.origin is None else [Path(spec.origin).parent]
    files = [(path, root) for root in roots for path in sorted(root.rglob("*.py"))]
    own = [path for path, root in files if "site-packages" not in path.relative_to(root).parts]
    sequences = (tuple(calls) for path in own[:max_files] for calls in calls_in_order(path.read_bytes()))
    return [list(calls) for calls in dict.fromkeys(sequences)]  # code is copied: the test should not be in the training


def movielens_sequences(path: Path) -> list[list[str]]:
    """Films of each user in order of time, from lines `UserID::MovieID::Rating::Timestamp` (MovieLens-1M)."""
    rated: dict[str, list[tuple[int, str]]] = defaultdict(list)
    with path.open(encoding="latin-1") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.rstrip("\r\n").split("::")
            if len(parts) != 4 or not parts[3].isdigit():
                raise SystemExit(f"{path}:{number}: wants UserID::MovieID::Rating::Timestamp, got {line[:60]!r}")
            rated[parts[0]].append((int(parts[3]), parts[1]))
    return [[film for _, film in sorted(films, key=lambda pair: pair[0])] for films in rated.values()]


def to_ids(sequences: list[list[str]], min_count: int, max_length: int) -> tuple[Tensor, list[str]]:
    """The last items of each sequence of at least 5, as ids; the most frequent item is 0.

    Shapes: -> (n, max_length + 2)
    """
    counts = Counter(item for sequence in sequences for item in sequence)
    names = [item for item, n in counts.most_common() if n >= min_count]
    ids = {name: i for i, name in enumerate(names)}
    kept = [[ids[item] for item in sequence if item in ids] for sequence in sequences]
    rows = [row[-(max_length + 2) :] for row in kept if len(row) >= 5]
    return torch.tensor([[PADDING] * (max_length + 2 - len(row)) + row for row in rows]), names


# The network


class Body(nn.Module):
    """Items to one vector for each position, with causal attention.  Shapes: (rows, T) -> (rows, T, width)"""

    def __init__(self, embedding: nn.Module, width: int, length: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.positions = embedding, nn.Embedding(length, width)
        self.input = nn.LazyLinear(width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.2, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.input(self.embedding(ids.clamp(min=0)))
        x = x + self.positions(torch.arange(ids.shape[1]))
        # Padding is on the left: a position sees itself and earlier items; what is padding predicts nothing.
        causal = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.layers(x * (ids >= 0)[..., None], mask=causal, is_causal=True)


def full_softmax(head: Any, h: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(head(h).flatten(0, 1), y.flatten(), ignore_index=PADDING)


def sampled_softmax(head: Any, h: Tensor, y: Tensor) -> Tensor:
    real = y != PADDING
    h, y = h[real], y[real]
    negatives = torch.randint(head.out_features, (NEGATIVES,))
    positive = (h * head.weight[y]).sum(1) + head.bias[y]
    others = nn.functional.linear(h, head.weight[negatives], head.bias[negatives])
    others = others.masked_fill(negatives == y[:, None], -torch.inf)
    return cross_entropy(torch.cat([positive[:, None], others], 1), torch.zeros(len(y), dtype=torch.long))


def holographic_softmax(head: Any, h: Tensor, y: Tensor) -> Tensor:
    return head.loss(h, y)  # ignore_index is -100, as in torch


def build(kind: str, n_items: int, counts: Tensor, width: int, dim: int, length: int, layers: int) -> Any:
    torch.manual_seed(0)
    losses: dict[str, Callable[..., Tensor]] = {"full": full_softmax, "sampled": sampled_softmax}
    if kind == "holographic":
        head = hb.HolographicHead(width, n_items, dim)
        head.set_prior(counts)
        body = Body(hb.CodebookEmbedding(head.codebook), width, length, layers)  # no table of items x width either
        return body, head, holographic_softmax
    body = Body(nn.Embedding(n_items, width), width, length, layers)
    return body, nn.Linear(width, n_items), losses[kind.removeprefix("linear, ")]


# Training and test


def train(body: nn.Module, head: nn.Module, loss: Any, rows: Tensor, seconds: float, max_steps: int) -> int:
    """Train for a time, or for so many steps; return the number of steps."""
    body(rows[:2, :-1])  # sets the size of the lazy layer
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3)
    began, steps = time.process_time(), 0
    while True:
        for chosen in torch.randperm(len(rows)).split(64):
            x = rows[chosen]
            optimiser.zero_grad()
            loss(head, body(x[:, :-1]), x[:, 1:]).backward()
            optimiser.step()
            steps += 1
            if steps >= max_steps or time.process_time() - began > seconds:
                return steps


@torch.no_grad()
def evaluate(body: nn.Module, head: Any, rows: Tensor, exclude_seen: bool) -> dict[str, float]:
    """NDCG@10 and the hit rate at 10 of the last item among all items."""
    gains = []
    for part in rows.split(256):
        h, wanted = body(part[:, :-1])[:, -1], part[:, -1]
        seen = part[:, :-1] if exclude_seen else part[:, :0]
        if isinstance(head, hb.HolographicHead):
            top = head.top_k(h, 10, exclude=seen)[1]
        else:
            scores = head(h)
            masked = scores.scatter(1, seen.clamp(min=0), -torch.inf) if seen.shape[1] else scores
            top = masked.topk(10).indices
        rank = (top == wanted[:, None]).float()
        gains.append((rank / torch.arange(2, 12).log2()).sum(1))
    gain = torch.cat(gains)
    return {"NDCG@10": round(gain.mean().item(), 4), "HR@10": round((gain > 0).float().mean().item(), 4)}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, for each output layer")
    parser.add_argument("--movielens", type=Path, help="ratings.dat of MovieLens-1M")
    parser.add_argument("--packages", nargs="*", default=["torch", "scipy", "sklearn", "transformers"])
    args = parser.parse_args(arguments)
    length, width, dim, layers = (8, 16, 32, 1) if args.small else (50, 64, 256, 2)
    if args.movielens:
        sequences = movielens_sequences(args.movielens)
    else:
        sequences = python_sequences([] if args.small else args.packages, 40 if args.small else 100_000)
    rows, names = to_ids(sequences, 2 if args.small else 5, length)
    # Without the last two items, as usual; the rest moves to the right, to the positions that the test reads.
    train_rows = nn.functional.pad(rows[:, :-2], (2, 0), value=PADDING)
    counts = rows[:, :-1][rows[:, :-1] >= 0].bincount(minlength=len(names))
    results = {}
    for kind in ("linear, full", "linear, sampled", "holographic"):
        body, head, loss = build(kind, len(names), counts, width, dim, rows.shape[1], layers)
        steps = train(body.train(), head.train(), loss, train_rows, args.seconds, 60 if args.small else 10**9)
        weights = sum(p.numel() for p in head.parameters())
        found = evaluate(body.eval(), head.eval(), rows, exclude_seen=args.movielens is not None)
        megabytes = round(16e-6 * weights, 2)  # Adam has a gradient and two moments for each weight
        results[kind] = {**found, "steps": steps, "output layer weights": weights, "training MB": megabytes}
        print(kind, results[kind], flush=True)
    return {"items": len(names), "sequences": len(rows), "results": results}


if __name__ == "__main__":
    print(json.dumps(main()))
