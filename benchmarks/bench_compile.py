"""`torch.compile` of a head's loss: the CPU time to compile, and that of a step before and after.

    python benchmarks/bench_compile.py

The loss is compiled by inductor with fullgraph=True, forward and backward. Eager mode has kernels of its own (blocks
with their own derivative, the fused query loss) and bounded memory; the compiled loss holds rows x L scores. All times
are those of the processor, with the compiler's, so that other work on the machine does not change them; with
OMP_NUM_THREADS=1 they are the times of an idle machine. The last line printed is JSON.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config as inductor

import holobind as hb

SHAPES = {"eurlex-4k": (3_993, 400), "wiki10-31k": (30_938, 1024)}
HIDDEN, BATCH, STEPS = 512, 64, 10


def cpu_seconds() -> float:
    """Of this process and of those that it has started and that have ended, such as compilers."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def step_ms(loss: Callable[..., torch.Tensor], h: torch.Tensor, y: torch.Tensor) -> float:
    times = []
    for _ in range(STEPS):
        began = cpu_seconds()
        loss(h, y).backward()
        times.append(cpu_seconds() - began)
    return round(1000 * sorted(times)[STEPS // 2], 2)


def main() -> None:
    results: list[dict[str, Any]] = []
    inductor.compile_threads = 1  # a pool of compilers would not have ended, and its time would not be counted
    for name, (labels, dim) in SHAPES.items():
        for kind in ("softmax", "query"):
            torch._dynamo.reset()
            head = hb.HolographicHead(HIDDEN, labels, dim, loss=kind, seed=0)
            if kind == "softmax":
                head.set_prior(torch.arange(1, labels + 1))
            generator = torch.Generator().manual_seed(0)
            h = torch.randn(BATCH, HIDDEN, generator=generator, requires_grad=True)
            y = torch.randint(labels, (BATCH,), generator=generator)
            eager = step_ms(head.loss, h, y)
            compiled = torch.compile(head.loss, fullgraph=True)
            began = cpu_seconds()
            difference = abs((compiled(h, y) - head.loss(h, y)).item())
            compiled(h, y).backward()
            seconds = round(cpu_seconds() - began, 1)
            row = {"shape": name, "loss": kind, "compile s": seconds, "eager ms": eager}
            results.append(row | {"compiled ms": step_ms(compiled, h, y), "difference": difference})
            print(results[-1], flush=True)
    print(json.dumps({"batch": BATCH, "hidden": HIDDEN, "threads": torch.get_num_threads(), "results": results}))


if __name__ == "__main__":
    main()
