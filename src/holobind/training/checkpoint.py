"""Checkpoints: the weights, the best weights so far, the optimisers' states and the `TrainState` of a run in one file.

The file is a `_storage` file of kind "checkpoint". Its header has `run`, what must be the same for the run to be
resumed, and `state`. Its tensors are `model.*`, `best.*` once there is a best epoch, and
`optimiser.<parameter>.<name>`.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from holobind import _storage as storage
from holobind.codebooks._fingerprint import without_fingerprints
from holobind.data.batches import Examples, SparseExamples, TextExamples, TokenExamples
from holobind.data.csr import release_array
from holobind.errors import FileError
from holobind.networks.sharded import ShardedLinear, sharded_layers
from holobind.training.optimiser import RowAdam

VERSION = 2
CHECKSUM_BLOCK, MAX_CHECKSUM_BLOCKS = 1 << 14, 1 << 9  # numbers; up to 8 million of an array, a tenth of a second
# The state that an optimiser has for a parameter: of its shape, one value for each of its rows, or one value.
OPTIMISER_STATE: dict[type[Optimizer], dict[str, str]] = {
    AdamW: {"step": "one", "exp_avg": "all", "exp_avg_sq": "all"},
    RowAdam: {"mean": "all", "square": "rows", "steps": "rows"},
}


def write(
    path: Path,
    run: dict[str, Any],
    state: dict[str, Any],
    model: nn.Module,
    best: dict[str, Tensor] | None,
    optimisers: list[Optimizer],
    *,
    is_main: bool = True,
) -> None:
    """Write the file whole or not at all: the previous one stays until the new one takes its name.

    All processes call it, because parts of the weights may be in others (`sharded_layers`); the first one writes.
    """
    sharded = sharded_layers(model)

    def whole(name: str, tensor: Tensor) -> Tensor | None:
        return sharded[name].whole(tensor, everywhere=False) if name in sharded else tensor

    # The run says which seed draws the label vectors, so that no fingerprint is needed.
    found: dict[str, Tensor | None] = {}
    for kind, state_dict in (("model", model.state_dict()), ("best", best or {})):
        found |= {f"{kind}.{name}": whole(name, tensor) for name, tensor in without_fingerprints(state_dict).items()}
    for name, parameter, optimiser in _parameters(model, optimisers):
        kept = optimiser.state.get(parameter, {})
        found |= {f"optimiser.{name}.{key}": whole(name, tensor) for key, tensor in kept.items()}
    if not is_main:
        return
    tensors = {name: tensor.cpu() for name, tensor in found.items() if tensor is not None}
    storage.write(path, "checkpoint", VERSION, {"state": state, "run": run}, tensors)


def read(
    path: Path, run: dict[str, Any], model: nn.Module, optimisers: list[Optimizer]
) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Restore the weights and the optimisers' states; return the `TrainState` and the best weights so far.

    Nothing is changed unless the whole file is valid.
    """
    header, stored = storage.read(path, "checkpoint", VERSION)
    tensors = _own_rows(path, sharded_layers(model), stored)
    if header.get("run") != run:
        raise FileError(f"{path} is of a run with other data or options; repeat those, or remove it to start anew")
    state_dict = model.state_dict()
    wanted = _shapes_and_dtypes(without_fingerprints(state_dict))
    weights, best = _under("model.", tensors), _under("best.", tensors)
    states: dict[nn.Parameter, tuple[Optimizer, dict[str, Tensor]]] = {}
    used = len(weights) + len(best)
    for name, parameter, optimiser in _parameters(model, optimisers):
        state = _under(f"optimiser.{name}.", tensors)
        used += len(state)
        shapes = {"all": tuple(parameter.shape), "rows": tuple(parameter.shape[:1]), "one": ()}
        keys = {
            key: (shapes[size], torch.float32 if size == "one" else parameter.dtype)
            for key, size in OPTIMISER_STATE[type(optimiser)].items()
        }
        if state and _shapes_and_dtypes(state) != keys:
            raise _damaged(path, f"the optimiser's state of {name}")
        if state:
            states[parameter] = optimiser, {key: tensor.to(parameter.device) for key, tensor in state.items()}
    for kind, found in (("weights", weights), ("best weights", best or weights)):
        if _shapes_and_dtypes(found) != wanted:
            raise _damaged(path, f"its {kind} are not those of this model")
    if used != len(tensors) or not isinstance(header.get("state"), dict):
        raise _damaged(path, "it has other tensors, or no state")
    if not all(storage.is_finite(tensor) for tensor in tensors.values() if tensor.is_floating_point()):
        raise _damaged(path, "it holds NaN or infinite numbers")
    model.load_state_dict(state_dict | weights)
    for parameter, (optimiser, state) in states.items():
        optimiser.state[parameter] = state
    device = next(model.parameters()).device
    if not best:
        return header["state"], None
    return header["state"], state_dict | {name: tensor.to(device) for name, tensor in best.items()}


def _own_rows(path: Path, sharded: dict[str, ShardedLinear], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with the rows of this process where processes divide them."""
    own = dict(tensors)
    for parameter, layer in sharded.items():
        for name, tensor in tensors.items():
            if parameter == name.partition(".")[2] or name.startswith(f"optimiser.{parameter}."):
                if not tensor.ndim or len(tensor) != layer.n_features:
                    raise _damaged(path, f"{name[:60]} does not have {layer.n_features} rows")
                own[name] = layer.own(tensor).clone()
    return own


# What must be the same for a run to be resumed


def examples_fingerprint(examples: Examples) -> dict[str, Any]:
    """Sizes and checksums of the inputs of a run: rows of features, tokens of texts, or both."""
    if isinstance(examples, TextExamples):
        features, tokens = examples_fingerprint(examples.features), examples_fingerprint(examples.tokens)
        return {"features": features, "tokens": tokens}
    if isinstance(examples, SparseExamples):
        X = examples.X
        return {"normalise": examples.normalise, **csr_fingerprint(X.shape, X.indptr, X.indices, X.data)}
    if isinstance(examples, TokenExamples):
        return csr_fingerprint((len(examples),), examples.offsets, examples.ids)
    sizes = examples.sizes  # inputs of the caller's own kind
    return {"rows": len(examples), "sizes": None if sizes is None else checksum(sizes)}


def csr_fingerprint(shape: Sequence[int], *arrays: NDArray[Any]) -> dict[str, Any]:
    """The shape of a matrix, and the lengths and checksums of its arrays."""
    return {
        "shape": [int(n) for n in shape],
        "lengths": [len(array) for array in arrays],
        "checksums": [checksum(array) for array in arrays],
    }


def checksum(array: NDArray[Any]) -> int:
    """CRC-32 of an array of numbers, whatever their precision: of all of them, or of blocks of a large array."""
    starts = range(0, len(array), CHECKSUM_BLOCK)
    if len(starts) > MAX_CHECKSUM_BLOCKS:
        starts = np.linspace(0, len(array) - CHECKSUM_BLOCK, MAX_CHECKSUM_BLOCKS).astype(int).tolist()
    wide = np.float64 if array.dtype.kind == "f" else np.int64
    total = 0
    for start in starts:
        total = zlib.crc32(array[start : start + CHECKSUM_BLOCK].astype(wide).data, total)
        release_array(array, start, start + CHECKSUM_BLOCK)
    return total


def _damaged(path: Path, what: str) -> FileError:
    return FileError(f"{path} is damaged ({what}); remove it to start anew")


def _shapes_and_dtypes(tensors: dict[str, Tensor]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _parameters(model: nn.Module, optimisers: list[Optimizer]) -> list[tuple[str, nn.Parameter, Optimizer]]:
    """The name of each parameter, and the optimiser that has it."""
    owner = {id(p): optimiser for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]}
    return [(name, p, owner[id(p)]) for name, p in model.named_parameters() if id(p) in owner]
