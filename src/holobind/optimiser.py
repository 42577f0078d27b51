"""Adam for layers of which a batch touches only a few rows."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class RowAdam(Optimizer):
    """Adam on the rows of matrices that a batch has touched; the others stay as they are.

    For the gradient g of a row, at that row's t-th step:

        m <- b1 m + (1 - b1) g          v <- b2 v + (1 - b2) mean(g^2)          one v for the whole row
        row <- row - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    A dense update of features x hidden weights at every step costs more than the rest of the step together, and gives
    rare features steps in which they did not occur. Gradients must be sparse (`SparseLinear`, `nn.Embedding`).
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
                    self._update(parameter, parameter.grad.coalesce(), group)

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = parameter.new_zeros(len(parameter))
            state["steps"] = parameter.new_zeros(len(parameter))
        rows, g = grad.indices()[0], grad.values()
        b1, b2 = group["betas"]
        mean, square, steps = (state[name].index_select(0, rows) for name in ("mean", "square", "steps"))
        steps += 1
        mean.lerp_(g, 1 - b1)
        square.lerp_(g.square().mean(1), 1 - b2)
        for name, now in (("mean", mean), ("square", square), ("steps", steps)):
            state[name].index_copy_(0, rows, now)
        root = (square / (1 - b2**steps)).sqrt_().add_(group["eps"])
        scale = -group["lr"] / ((1 - b1**steps) * root)
        parameter.index_add_(0, rows, mean.mul_(scale[:, None]))
