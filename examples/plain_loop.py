"""A plain PyTorch loop: `nn.Linear` and `HolographicHead` behind one body, on functions and the names they call.

    python examples/plain_loop.py [--small]

Data: python-calls, made from the installed standard library. A row is a function (tf-idf of its name, arguments and
docstring); its labels are the names that it calls. Both heads train with the softmax cross-entropy over all labels.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn

import holobind as hb


class Linear(nn.Module):
    """`nn.Linear` and its loss, with the methods of a head that this loop uses."""

    def __init__(self, in_features: int, n_labels: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, n_labels)

    def loss(self, h: torch.Tensor, Y: sparse.csr_array) -> torch.Tensor:
        share = torch.from_numpy(Y.toarray()).float()
        return nn.functional.cross_entropy(self.layer(h), share / share.sum(1, keepdim=True).clamp(min=1))

    def top_k(self, h: torch.Tensor, k: int) -> Any:
        return self.layer(h).topk(k)


def holographic(in_features: int, Y: sparse.csr_array, dim: int) -> hb.HolographicHead:
    head = hb.HolographicHead(in_features, Y.shape[1], dim)
    head.set_prior(torch.from_numpy(np.asarray(Y.sum(0)).ravel()))  # label frequencies: always worth setting
    return head


def dense(X: sparse.csr_array, rows: Any) -> torch.Tensor:
    return torch.from_numpy(X[rows].toarray()).float()


def train(body: nn.Module, head: Any, data: hb.Split, epochs: int, batch: int) -> float:
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 2e-3)
    began = time.process_time()
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(data.X.shape[0])
        for rows in np.array_split(order, max(1, len(order) // batch)):
            optimiser.zero_grad()
            loss = head.loss(body(dense(data.X, rows)), data.Y[rows])  # a scipy matrix is a form of targets
            loss.backward()
            optimiser.step()
    return time.process_time() - began


def evaluate(body: nn.Module, head: Any, data: hb.Split) -> dict[str, float]:
    with torch.no_grad():
        parts = np.array_split(np.arange(data.X.shape[0]), max(1, data.X.shape[0] // 256))
        top = np.concatenate([head.top_k(body(dense(data.X, rows)), 5)[1].numpy() for rows in parts])
    precision = hb.metrics.precision_at_k(data.Y, top)
    return {"P@1": round(float(precision[0]), 2), "P@5": round(float(precision[4]), 2)}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args(arguments).small
    calls = hb.data.python_calls(["email"] if small else ["stdlib"])
    hidden, dim, epochs, rows = (32, 32, 5, 600) if small else (256, 512, 10, calls.train.X.shape[0])
    chosen = np.random.default_rng(0).permutation(calls.train.X.shape[0])[:rows]
    data = hb.Split(calls.train.X[chosen], calls.train.Y[chosen], None)
    results = {}
    for name in ("nn.Linear", "HolographicHead"):
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(data.X.shape[1], hidden), nn.ReLU(), nn.Dropout(0.2))
        head = Linear(hidden, data.Y.shape[1]) if name == "nn.Linear" else holographic(hidden, data.Y, dim)
        seconds = train(body.train(), head.train(), data, epochs, 32 if small else 64)
        weights = sum(p.numel() for p in head.parameters())
        found = evaluate(body.eval(), head.eval(), calls.test)
        results[name] = {**found, "output layer weights": weights, "processor seconds": round(seconds, 1)}
        print(name, results[name], flush=True)
    return {"labels": data.Y.shape[1], "rows": len(chosen), "results": results}


if __name__ == "__main__":
    print(json.dumps(main()))
