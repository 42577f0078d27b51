"""The fingerprint of drawn vectors: what a state must have in common with the module that loads it.

Vectors that are drawn from a seed are not part of a state_dict. Weights that were trained for one seed answer wrongly
with another, and nothing else in the state would show it. So the state has a fingerprint, four integers:

    fingerprint    (4) int64: checksum of the kind, number of labels, dim, seed (-1: none)

`load_state_dict` refuses a fingerprint other than the module's own, strict or not, as torch refuses another shape.
Loaders that assign tensors themselves (Hugging Face `from_pretrained`) are caught at the next use. The fingerprint is a
buffer, so whatever moves a model moves it, too: its device is the device of the drawn vectors.
"""

from collections.abc import Callable
from typing import Any, Self
from zlib import crc32

import torch
from torch import Tensor, nn

from holobind.codebooks._tracing import has_values
from holobind.errors import OptionError

FIELDS = ("codebook", "n_labels", "dim", "seed")
_NAMES = {crc32(kind.encode()): kind for kind in ("orbit", "random", "one_hot", "dense", "keys")}
FINGERPRINT = "fingerprint"


class Fingerprinted(nn.Module):
    """A module whose state includes a fingerprint."""

    fingerprint: Tensor
    _verified: Tensor | None = None  # the tensor that was compared last

    def _set_fingerprint(self, kind: str, n_labels: int, dim: int, seed: int | None, *, stored: bool = True) -> None:
        """Register the fingerprint; `stored` tells whether it is part of the state."""
        signed = -1 if seed is None else (seed + (1 << 63)) % (1 << 64) - (1 << 63)
        self._own_fingerprint = (crc32(kind.encode()), n_labels, dim, signed)
        self.register_buffer(FINGERPRINT, torch.tensor(self._own_fingerprint), persistent=stored)

    def without_state(self) -> Self:
        """The module, whose fingerprint is no part of the state from now on: another module's says the same."""
        self._non_persistent_buffers_set.add(FINGERPRINT)
        return self

    def _reset_fingerprint(self) -> None:
        """Write the fingerprint again, after `to_empty` has left no values in it."""
        self.fingerprint = torch.tensor(self._own_fingerprint, device=self.fingerprint.device)

    def _verify(self) -> None:
        """Raise an OptionError if the fingerprint is not the module's own; a tensor is compared once."""
        found = self._buffers.get(FINGERPRINT)
        if found is self._verified or found is None or not has_values(found):
            return
        if FINGERPRINT not in self._non_persistent_buffers_set:
            problem = self._difference(found)
            if problem:
                raise OptionError(
                    f"{type(self).__name__}: {problem}; or its weights were made by `to_empty` and neither loaded nor "
                    "set by `reset_parameters`"
                )
        self._verified = found

    def _difference(self, found: Tensor) -> str | None:
        """How a fingerprint differs from the module's own, or None."""
        if found.shape != (len(FIELDS),) or found.dtype != torch.int64:
            return f"the state has no valid fingerprint, but {found.dtype} of shape {tuple(found.shape)}"
        pairs = zip(FIELDS, found.tolist(), self._own_fingerprint, strict=True)
        different = [(name, *map(_readable(name), values)) for name, *values in pairs if values[0] != values[1]]
        if not different:
            return None
        theirs = ", ".join(f"{name} {value}" for name, value, _ in different)
        mine = ", ".join(f"{name} {value}" for name, _, value in different)
        return f"the state is of {theirs}; this module has {mine}: build it as the one that was saved"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        found = state_dict.get(prefix + FINGERPRINT) if FINGERPRINT in self._buffers else None
        problem = None if found is None or not has_values(found) else self._difference(found)
        if problem:
            errors: list[str] = arguments[-1]
            errors.append(f"{prefix}{FINGERPRINT}: {problem}")
        else:
            super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        name = prefix + FINGERPRINT
        if not keep_vars and name in destination:
            # A copy: safetensors refuses tensors that share memory, as those of a codebook in two places would.
            destination[name] = destination[name].clone()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self._buffers.get(FINGERPRINT)
        super()._apply(fn, recurse)
        if before is not None and before.is_meta and not self.fingerprint.is_meta:
            self._reset_fingerprint()
        return self


def without_fingerprints(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state without fingerprints, for a file whose header has the same facts."""
    return {name: tensor for name, tensor in state.items() if name.rpartition(".")[2] != FINGERPRINT}


def _readable(field: str) -> Callable[[int], object]:
    return (lambda value: repr(_NAMES.get(value, "of another kind"))) if field == "codebook" else lambda value: value
