"""The optimisers of a model, and Adam for layers of which a batch touches only a few rows."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from holobind._jit import compiled
from holobind.codebooks import Codebook
from holobind.errors import OptionError
from holobind.training.config import TrainConfig

DENSE_COPIES = 4  # that training with AdamW keeps of a weight: itself, its gradient, two moments
SPARSE_COPIES = 2  # with RowAdam: itself and one moment
MIN_ELEMENTS_PER_THREAD = 1 << 16  # with fewer, a second thread takes longer to wake than it saves


class RowAdam(Optimizer):
    """Adam on the rows of matrices that occur in a batch; the other rows stay unchanged.

    State of a parameter (n, d): `mean` (n, d), `square` (n), `steps` (n).

    For the gradient g of a row, at that row's t-th step:

        m <- b1 m + (1 - b1) g          v <- b2 v + (1 - b2) mean(g^2)          one v for the whole row
        row <- row - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    A dense update of features x hidden weights at every step costs more than the rest of the step, and moves the
    weights of rare features in steps in which they do not occur. One v for a row halves the memory of the state.
    Gradients must be sparse (`SparseLinear`, `nn.Embedding`). On the CPU a row is updated in one compiled
    pass while it is in the cache (benchmarks/bench_optimiser.py); elsewhere, by torch's operations.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, *_rows_and_values(parameter, parameter.grad), group)

    def _update(self, parameter: Tensor, rows: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = parameter.new_zeros(len(parameter))
            state["steps"] = parameter.new_zeros(len(parameter))
        settings = (group["lr"], *group["betas"], group["eps"])
        whole = (parameter, state["mean"], state["square"], state["steps"])
        tensors = (*whole, g)
        if all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors):
            update_compiled(rows, g, *whole, *settings)
        else:
            update_by_operations(rows, g, *whole, *settings)


def optimisers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """AdamW for dense gradients, with weight decay for matrices only; `RowAdam` for sparse gradients.

    Label vectors that are trained have an AdamW and a learning rate of their own, and no weight decay.
    """
    sparse_ids, label_ids = set(map(id, sparse_weights(model))), _label_vectors(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    sparse = [p for p in trained if id(p) in sparse_ids]
    labels = [p for p in trained if id(p) in label_ids]
    dense = [p for p in trained if id(p) not in sparse_ids | label_ids]
    groups = [
        {"params": [p for p in dense if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in dense if p.ndim <= 1], "weight_decay": 0.0},
    ]
    resolved = config.resolve(1)
    rate, label_rate, eps = resolved.learning_rate, resolved.label_learning_rate, config.adam_epsilon
    assert rate is not None and label_rate is not None
    found: list[Optimizer] = []
    if dense:
        found.append(AdamW([g for g in groups if g["params"]], lr=rate, eps=eps, fused=True))
    if sparse:
        feature_rate = rate if config.feature_learning_rate is None else config.feature_learning_rate
        found.append(RowAdam(sparse, lr=feature_rate, eps=eps))
    if labels:
        found.append(AdamW(labels, lr=label_rate, eps=eps, weight_decay=0.0, fused=True))
    return found


def _label_vectors(model: nn.Module) -> set[int]:
    """The ids of parameters that are label vectors."""
    return {id(p) for m in model.modules() if isinstance(m, Codebook) for p in m.parameters()}


def sparse_weights(module: nn.Module) -> list[Tensor]:
    """The parameters with sparse gradients, which `RowAdam` updates."""
    return [m.weight for m in module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse]


def _rows_and_values(parameter: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a sparse gradient, each once in ascending order, and their values.

    Autograd drops the flag that a gradient is coalesced; coalescing again would sort and copy what `SparseLinear` has
    sorted already. Rows are compared with the parameter, because torch does not check them and compiled code cannot.
    """
    if not grad.is_sparse or grad.sparse_dim() != 1 or parameter.ndim != 2:
        raise OptionError(
            f"RowAdam: wants matrices with gradients that are sparse in their rows; got a {grad.layout} gradient of a "
            f"parameter of shape {tuple(parameter.shape)}; give it to another optimiser"
        )
    rows, values = grad._indices()[0], grad._values()
    if not bool((rows[1:] > rows[:-1]).all()):
        _check_rows(rows, values, parameter)  # before it is coalesced, which does not check them either
        grad = grad.coalesce()
        rows, values = grad.indices()[0], grad.values()
    _check_rows(rows, values, parameter)
    return rows, values


def _check_rows(rows: Tensor, values: Tensor, parameter: Tensor) -> None:
    n_rows, d = parameter.shape
    if values.shape != (len(rows), d):
        raise OptionError(f"RowAdam: a gradient has values of shape {tuple(values.shape)} for rows of {d} weights")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        wrong = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise OptionError(f"RowAdam: a gradient has row {wrong} of a parameter with rows 0 to {n_rows - 1}")


def update_by_operations(
    rows: Tensor,
    g: Tensor,
    weight: Tensor,
    mean: Tensor,
    square: Tensor,
    steps: Tensor,
    lr: float,
    b1: float,
    b2: float,
    eps: float,
) -> None:
    """The update by torch's operations: nine passes over the rows, on any device."""
    m, v, t = (whole.index_select(0, rows) for whole in (mean, square, steps))
    t += 1
    m.lerp_(g, 1 - b1)
    v.lerp_(g.square().mean(1), 1 - b2)
    for whole, now in ((mean, m), (square, v), (steps, t)):
        whole.index_copy_(0, rows, now)
    root = (v / (1 - b2**t)).sqrt_().add_(eps)
    weight.index_add_(0, rows, m.mul_((-lr / ((1 - b1**t) * root))[:, None]))


def update_compiled(rows: Tensor, g: Tensor, *whole: Tensor | float) -> None:
    """The same update, each row in one pass, on torch's number of threads; the result does not depend on it."""
    arrays = [value.detach().numpy() if isinstance(value, Tensor) else value for value in whole]
    threads = torch.get_num_threads() if g.numel() > MIN_ELEMENTS_PER_THREAD else 1
    index, grad = rows.numpy(), g.numpy()
    cut = [len(index) * i // threads for i in range(threads + 1)]
    jobs = [(index[a:b], grad[a:b], *arrays) for a, b in pairwise(cut)]
    if threads == 1:
        _rows(*jobs[0])
    else:
        list(_pool(threads, os.getpid()).map(lambda job: _rows(*job), jobs))


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # threads do not live on in a forked process
    return ThreadPoolExecutor(threads, thread_name_prefix="rows")


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _rows(rows, grad, weight, mean, square, steps, lr, b1, b2, eps):  # type: ignore[no-untyped-def]
    d = grad.shape[1]
    keep, add = steps.dtype.type(b1), steps.dtype.type(1 - b1)
    for i in range(len(rows)):
        r = rows[i]
        g, m, w = grad[i], mean[r], weight[r]
        total = add - add
        for j in range(d):
            total += g[j] * g[j]
        steps[r] += 1
        square[r] += (total / d - square[r]) * (1 - b2)
        root = (square[r] / (1 - b2 ** steps[r])) ** 0.5 + eps
        scale = steps.dtype.type(lr / ((1 - b1 ** steps[r]) * root))
        for j in range(d):
            m[j] = keep * m[j] + add * g[j]
            w[j] -= scale * m[j]
