"""A head from what a model file stores: its `config()` and its tensors. A damaged or hostile file is refused."""

from typing import Any

import torch
from torch import Tensor

from holobind import _storage as storage
from holobind.codebooks._fingerprint import without_fingerprints
from holobind.errors import FileError
from holobind.heads._query_subspace import layer_rows
from holobind.heads.holographic import HolographicHead
from holobind.heads.linear import LinearHead

Head = HolographicHead | LinearHead


def head_from_config(
    config: dict[str, Any], in_features: int | None, n_labels: int, tensors: dict[str, Tensor]
) -> Head:
    """Build a head from its `config()` and its `state_dict()`; refuse with a FileError what does not fit together.

    in_features   the size of the network's output, or None if it is not known and need not fit

    Sizes that only the config claims take no memory: they are compared with the tensors before anything is drawn.
    """
    kind = config["class"]
    if kind not in ("holographic", "linear"):
        raise FileError(f"it has a head {str(kind)[:40]!r}; this holobind knows holographic and linear")
    weight = tensors.get("weight")
    dim = rows = config.get("dim") if kind == "holographic" else n_labels
    if in_features is None:
        in_features = dim if weight is None else weight.shape[-1]
    layer_inputs = None if weight is None else in_features
    if layer_inputs and kind == "holographic" and isinstance(dim, int):
        rows = layer_rows(n_labels, dim, config["codebook"], config["loss"], config["trainable"])
    fits = dim == in_features if weight is None else tuple(weight.shape) == (rows, in_features)
    if not isinstance(dim, int) or not fits:
        raise FileError(f"its head is of size {str(dim)[:20]}, which does not fit its weights")
    bias = weight is None or "bias" in tensors
    head: Head
    if kind == "linear":
        head = LinearHead(layer_inputs, n_labels, config["loss"], 0, bias=bias)
    else:
        if type(config["seed"]) is not int:
            raise FileError(f"its head has the seed {str(config['seed'])[:40]!r}, which is no whole number")
        _check_label_vectors(config, dim, n_labels, tensors)
        head = HolographicHead(
            layer_inputs,
            n_labels,
            dim,
            config["codebook"],
            config["loss"],
            config["seed"],
            config["trainable"],
            bias=bias,
            prior=torch.zeros(n_labels) if "prior" in tensors else None,
        )
    # The config says what a fingerprint would say; a file need not have one.
    state = dict(head.state_dict())
    expected, given = without_fingerprints(state), without_fingerprints(tensors)
    storage.check_tensors("head", expected, given)
    head.load_state_dict(state | given)
    return head


def _check_label_vectors(config: dict[str, Any], dim: int, n_labels: int, tensors: dict[str, Tensor]) -> None:
    """Refuse a file without the label vectors that the head stores.

    The head draws them before the tensors are compared, so the file must show first that it is as large as they are.
    """
    if "labels" in config["trainable"] or config["codebook"] == "naive":
        rows = -(-n_labels // dim) if config["codebook"] == "orbit" else n_labels
        if not any(tuple(t.shape) == (rows, dim) for name, t in tensors.items() if name.startswith("codebook.")):
            raise FileError(f"its head lacks its label vectors, {rows} of {dim} dimensions")
