"""Modules of packed buffers, whose dtypes are part of what they store."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class FixedDtypeModule(nn.Module):
    """A module that moves between devices like others, but keeps its dtypes in `.half()`, `.double()` and `.to()`."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)
