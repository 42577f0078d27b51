"""Retrieval with a million classes, as in face recognition: the output layer would not fit, the holographic one does.

    python examples/million_classes.py [--small] [--classes 1000000] [--seconds 120]

Synthetic: a class is a random code, and an example is its code seen through a fixed random network, with noise. The
body learns to map examples to outputs of d dimensions. An nn.Linear of 512 x 1,000,000 weights takes 2 GB, and 8 GB in
training with Adam; the head has 512 x d. Most classes are never seen in training. The test asks for the class of a new
example of a seen class, among all classes. Times are those of the processor.
"""

import argparse
import json
import resource
import time
from typing import Any

import torch
from torch import Tensor, nn

import holobind as hb

FEATURES = 64


class Examples:
    """Examples of classes: noisy views of a class's code."""

    def __init__(self, noise: float = 0.2) -> None:
        generator = torch.Generator().manual_seed(0)
        self.mixing = torch.randn(FEATURES, 2 * FEATURES, generator=generator) / FEATURES**0.5
        self.noise = noise

    def __call__(self, classes: Tensor, generator: torch.Generator) -> Tensor:
        codes = torch.cat([self._code(classes, half) for half in (0, 1)], 1)
        seen = torch.tanh(codes @ self.mixing)
        return seen + self.noise * torch.randn(seen.shape, generator=generator)

    def _code(self, classes: Tensor, half: int) -> Tensor:
        """32 signs of a class, from the bits of a hash."""
        word = (classes * 0x9E3779B97F4A7C15 + half * 0x632BE59BD9B4E019) % (1 << 62)
        word = (word ^ (word >> 29)) * 0xBF58476D1CE4E5B % (1 << 62)
        return ((word[:, None] >> torch.arange(20, 52)) & 1).float() * 2 - 1


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=120.0, help="of training")
    args = parser.parse_args(arguments)
    n, dim, hidden, seen_classes = (5_000, 64, 64, 200) if args.small else (args.classes, 1024, 512, 2_000)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    seen = torch.randperm(n, generator=generator)[:seen_classes]
    examples = Examples()
    body = nn.Sequential(nn.Linear(2 * FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    head = hb.HolographicHead(hidden, n, dim)
    counts = torch.zeros(n).index_fill_(0, seen, 100)
    head.set_prior(counts)  # half the log frequency: classes that training never shows start behind
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 2e-3)
    began, steps = time.process_time(), 0
    while steps < 150 if args.small else time.process_time() - began < args.seconds:
        y = seen[torch.randint(len(seen), (128,), generator=generator)]
        optimiser.zero_grad()
        # The query loss would cost the same for any number of classes; the softmax is over all of them.
        head.loss(body(examples(y, generator)), y).backward()
        optimiser.step()
        steps += 1
    training = time.process_time() - began
    body.eval(), head.eval()
    y = seen[torch.randint(len(seen), (256,), generator=generator)]
    with torch.no_grad():
        began = time.process_time()
        top = head.top_k(body(examples(y, generator)), 10)[1]
        search = time.process_time() - began
    weights = sum(p.numel() for p in head.parameters())
    return {
        "classes": n,
        "seen in training": len(seen),
        "accuracy": round((top[:, 0] == y).float().mean().item(), 4),
        "in the top 10": round((top == y[:, None]).any(1).float().mean().item(), 4),
        "steps": steps,
        "milliseconds a step": round(1000 * training / steps, 1),
        "milliseconds a search": round(1000 * search / len(y), 2),
        "output layer weights": weights,
        "nn.Linear would have": hidden * n + n,
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
