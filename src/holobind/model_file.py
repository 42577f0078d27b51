"""A model as one file; one that is damaged or hostile is refused.

The file is a `container` of kind "model" and version 1. Its header:

    network    {"class": "fc", "recall", "cnn" or "lstm", and what its `config` says}
    head       {"class": "holographic", "dim", "codebook", "seed", "loss", "trainable"} or {"class": "linear", "loss"}
    normalise  whether rows of features are scaled to length 1
    tokens     of a text network: {"kind", "lowercase", "max_tokens": tokens read of a text, "merges": how many}
    about      how it was trained: data, options, seconds, metrics; any JSON

and its tensors:

    network.*, head.*   the parameters, in any floating-point precision; what the seed draws again is not stored.
                        Of recall: weights in few bits, and the training rows and label sets that it recalls
    label_counts        (L) int32, how often each label occurs in training
    points              (1) int64, in how many points
    label_order         where the head numbers labels in its own way: (L) int32, which label is its first, and so on
    label_names         where known: UTF-8 lines, deflated, as uint8
    words, idf          of a model that makes features of texts: its words as lines, deflated, and (words) float32;
                        beginnings of words end in a star, without any, every word of a text counts once
    tokens, merges      of a text network: its tokenizer's, as lines, deflated; a merge is two tokens with a blank

A file is refused unless every number in it is finite, every tensor has the shape that the rest of the file implies, and
nothing is left over. Only lines unpack to more than the file has, to 1 kB a line on average and 64 kB, and what of a
network is deflated, to 256 times as much.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind import _storage as storage
from holobind import metrics
from holobind.data import Tfidf
from holobind.errors import DataError, FileError, HolobindError, OptionError
from holobind.heads import Head, HolographicHead, LinearHead, layer_rows
from holobind.networks import FC, AttentionLstm, Network, XmlCnn
from holobind.ridge_knn.network import RidgeKnn

if TYPE_CHECKING:
    from holobind.data.tokenizer import Tokenizer

VERSION = 1
NETWORKS: dict[str, type[Network]] = {"fc": FC, "knn_weight": RidgeKnn, "cnn": XmlCnn, "lstm": AttentionLstm}
# What a header that makes no sense leads to while a model is built as it says.
REFUSED = (HolobindError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


class Stored(Protocol):
    """What of a `model.Model` is stored: what it is made of."""

    network: Network
    head: Head
    frequencies: metrics.Frequencies
    normalise: bool
    tfidf: Tfidf | None
    tokenizer: "Tokenizer | None"
    max_tokens: int
    label_names: list[str] | None
    metadata: dict[str, Any]

    @property
    def label_order(self) -> NDArray[np.int64] | None: ...


def write(path: str | Path, model: Stored, dtype: torch.dtype) -> None:
    """Write a model whole or not at all; `dtype` is the precision of its matrices."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"dtype must be torch.float32, float16 or bfloat16; got {dtype}")
    tensors: dict[str, Tensor] = {
        "label_counts": torch.from_numpy(model.frequencies.counts.astype(np.int32)),
        "points": torch.tensor([model.frequencies.points]),
    }
    state = model.network.state_dict(prefix="network.") | model.head.state_dict(prefix="head.")
    for name, tensor in state.items():
        tensors[name] = tensor.cpu()
        if not tensor.is_floating_point():
            continue
        if tensor.ndim > 1:
            tensors[name] = tensors[name].to(dtype)
        if not _finite(tensors[name]):
            why = "they do not fit, take torch.float32" if _finite(tensor) else "training has failed"
            raise DataError(f"{name} holds NaN or infinite numbers in {tensors[name].dtype}: {why}")
    if model.label_order is not None:
        tensors["label_order"] = torch.from_numpy(model.label_order.astype(np.int32))
    if model.label_names is not None:
        tensors["label_names"] = storage.packed(model.label_names)
    if model.tfidf is not None:
        tensors |= {"words": storage.packed(model.tfidf.words), "idf": torch.from_numpy(model.tfidf.idf)}
    header = {
        "network": {"class": _name_of(model.network), **model.network.config()},
        "head": _describe(model.head),
        "normalise": model.normalise,
        "metadata": model.metadata,
    }
    if _wants_tokens(type(model.network)):
        if model.tokenizer is None:
            raise OptionError("a model with a text network is saved with its tokenizer; give it one")
        header["tokens"], packed = _pack(model.tokenizer, model.max_tokens)
        tensors |= packed
    storage.write(path, "model", VERSION, header, tensors, [f"network.{name}" for name in model.network.deflated])


def read(path: str | Path) -> dict[str, Any]:
    """What was `Stored`, by name, to make a model of."""
    header, tensors = storage.read(path, "model", VERSION)
    try:
        return _assemble(header, tensors)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except REFUSED as error:
        said = " ".join(str(error).split())[:200]
        raise FileError(f"{path} is not a model as holobind writes them ({type(error).__name__}: {said})") from error


def _assemble(header: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    described, head_said = dict(header["network"]), dict(header["head"])
    kind = described.pop("class")
    if kind not in NETWORKS:
        raise FileError(f"it has a network {str(kind)[:40]!r}; this holobind knows {', '.join(NETWORKS)}")
    if any(isinstance(value, list) and len(value) > len(tensors) for value in described.values()):
        raise FileError("its header has more layers than it has weights")
    counts = _tensor(tensors, "label_counts", torch.int32)
    points = _tensor(tensors, "points", torch.int64)
    if len(points) != 1 or not 0 <= int(counts.min()) <= int(counts.max()) <= int(points[0]):
        raise FileError("its label_counts and points cannot be those of any data")
    seen = metrics.Frequencies(counts.numpy().astype(np.int64), int(points[0]))
    order = _tensor(tensors, "label_order", torch.int32).numpy().astype(np.int64) if "label_order" in tensors else None
    if order is not None and (kind == "recall" or not np.array_equal(np.sort(order), np.arange(len(counts)))):
        raise FileError("its label_order does not name every label once, or is of a network that has none")
    names = _lines(tensors, "label_names", len(counts)) if "label_names" in tensors else None
    tfidf = None
    if "words" in tensors:
        idf = _tensor(tensors, "idf", torch.float32)
        tfidf = Tfidf(_lines(tensors, "words", len(idf)), idf.numpy())
        if len(idf) != described.get("n_features"):
            raise FileError(
                f"it has {len(idf)} words for a network of {str(described.get('n_features'))[:20]} features"
            )
    tokens = _unpack(header["tokens"], tensors, described["vocab_size"]) if _wants_tokens(NETWORKS[kind]) else {}
    parts: dict[str, dict[str, Tensor]] = {"network": {}, "head": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise FileError(f"it holds {name[:60]!r}, which no model has")
        parts[part][rest] = tensor
    with torch.device("meta"):  # shapes first: sizes that only the header claims must not take memory
        network = NETWORKS[kind](**described)
    _check_shapes("network", dict(network.state_dict()), parts["network"])
    network.load_state_dict(parts["network"], assign=True)
    network.check()
    if isinstance(network, RidgeKnn) and network.n_labels != len(counts):
        raise FileError(f"its network was solved for {str(network.n_labels)[:20]} labels; it has {len(counts)}")
    if isinstance(network, RidgeKnn) and (book := head_said.get("codebook")) != ("one_hot" if network.plain else "orbit"):
        raise FileError(f"its network was solved for other label vectors than {str(book)[:20]!r}")
    if isinstance(network, RidgeKnn) and (head_said.get("loss"), head_said.get("seed")) != ("softmax", network.seed):
        raise FileError("its head has another loss or seed than its network was solved for")
    head = _head(head_said, network.out_features, len(counts), parts["head"])
    if not isinstance(header["normalise"], bool) or not isinstance(header["metadata"], dict):
        raise FileError("its header has other types than it should")
    return {
        "network": network,
        "head": head,
        "frequencies": seen,
        "normalise": header["normalise"],
        "tfidf": tfidf,
        "label_names": names,
        "label_order": order,
        "metadata": header["metadata"],
        **tokens,
    }


def _head(said: dict[str, Any], inside: int, n_labels: int, tensors: dict[str, Tensor]) -> Head:
    layer = inside if "weight" in tensors else None
    kind = said.pop("class")
    if kind not in ("holographic", "linear"):
        raise FileError(f"it has a head {str(kind)[:40]!r}; this holobind knows holographic and linear")
    width = rows = said.get("dim") if kind == "holographic" else n_labels
    if layer and kind == "holographic" and isinstance(width, int):
        rows = layer_rows(n_labels, width, said["codebook"], said["loss"], said["trainable"])
    if not isinstance(width, int) or (tuple(tensors["weight"].shape) != (rows, inside) if layer else width != inside):
        raise FileError(f"its head is of size {str(width)[:20]}, which does not fit its weights")
    if kind == "holographic" and ("labels" in said["trainable"] or said["codebook"] == "naive"):
        # These vectors are stored, and would be drawn before they are compared: first see that the file has them.
        rows = -(-n_labels // width) if said["codebook"] == "orbit" else n_labels
        if not any(tuple(t.shape) == (rows, width) for name, t in tensors.items() if name.startswith("codebook.")):
            raise FileError(f"its head lacks its label vectors, {rows} of {width} numbers")
    bias = layer is None or "bias" in tensors
    if kind == "linear":
        head: Head = LinearHead(layer, n_labels, said["loss"], bias=bias)
    else:
        prior = torch.zeros(n_labels) if "prior" in tensors else None
        head = HolographicHead(
            layer, n_labels, width, said["codebook"], said["loss"], said["seed"], said["trainable"], bias=bias, prior=prior
        )
    _check_shapes("head", dict(head.state_dict()), tensors)
    head.load_state_dict(tensors)
    return head


def _wants_tokens(kind: type[Network]) -> bool:
    return kind in (XmlCnn, AttentionLstm)


def _pack(tokenizer: "Tokenizer", max_tokens: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    merges = [f"{a} {b}" for a, b in tokenizer.merges]
    said = {"kind": tokenizer.kind, "lowercase": tokenizer.lowercase, "max_tokens": max_tokens, "merges": len(merges)}
    tensors = {"tokens": storage.packed(tokenizer.tokens)}
    return said, tensors | ({"merges": storage.packed(merges)} if merges else {})


def _unpack(said: dict[str, Any], tensors: dict[str, Tensor], vocab_size: Any) -> dict[str, Any]:
    """A tokenizer as large as the network's embedding, whose shape is compared with its weights later."""
    from holobind.data.tokenizer import Tokenizer

    max_tokens, n = said["max_tokens"], said["merges"]
    stored = tensors["network.embedding.weight"].shape[:1]
    if type(max_tokens) is not int or max_tokens < 1 or type(n) is not int or (vocab_size,) != tuple(stored):
        raise FileError(f"its tokenizer does not fit a network of {str(vocab_size)[:20]} tokens")
    if not 0 <= n <= vocab_size:
        raise FileError(f"its tokenizer has {str(n)[:20]} merges for {vocab_size} tokens")
    merges = [line.split(" ") for line in _lines(tensors, "merges", n)] if n else []
    if any(len(pair) != 2 for pair in merges):
        raise FileError("its merges are not two tokens each")
    tokens = _lines(tensors, "tokens", vocab_size)
    tokenizer = Tokenizer(tokens, [(a, b) for a, b in merges], said["kind"], said["lowercase"])
    return {"tokenizer": tokenizer, "max_tokens": max_tokens}


def _describe(head: Head) -> dict[str, Any]:
    if isinstance(head, LinearHead):
        return {"class": "linear", "loss": head.loss_name}
    if head.drawn is None:
        raise OptionError("a head with a codebook of your own cannot be saved; name one: 'orbit' or 'random'")
    codebook, seed = head.drawn
    return {
        "class": "holographic",
        "dim": head.codebook.dim,
        "codebook": codebook,
        "seed": seed,
        "loss": head.loss_name,
        "trainable": list(head.trainable),
    }


def _name_of(network: Network) -> str:
    for name, kind in NETWORKS.items():
        if type(network) is kind:
            return name
    raise OptionError(
        f"a model with a network of yours, {type(network).__name__}, cannot be saved by holobind; save its state_dict"
    )


def _check_shapes(what: str, wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Refuse tensors of other shapes or kinds than wanted; finite numbers in any precision come as the wanted one."""
    if wanted.keys() != found.keys():
        odd = sorted(wanted.keys() ^ found.keys())[0]
        raise FileError(f"its {what} {'lacks' if odd in wanted else 'has a strange'} {odd[:60]!r}")
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            raise FileError(
                f"its {what}.{name} has shape {tuple(found[name].shape)}; the header asks for {tuple(tensor.shape)}"
            )
        if tensor.is_floating_point():
            found[name] = _number(f"{what}.{name}", found[name]).to(tensor.dtype)
        elif tensor.dtype != found[name].dtype:
            raise FileError(f"its {what}.{name} has {found[name].dtype}; it should be {tensor.dtype}")


def _tensor(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    tensor = tensors.pop(name)
    if tensor.dtype != dtype or tensor.ndim != 1 or not len(tensor):
        raise FileError(f"its {name} has {tensor.dtype} of shape {tuple(tensor.shape)}")
    return _number(name, tensor) if dtype.is_floating_point else tensor


def _lines(tensors: dict[str, Tensor], name: str, wanted: int) -> list[str]:
    found = storage.unpacked(_tensor(tensors, name, torch.uint8), wanted)
    if found is None:
        raise FileError(f"its {name} are damaged, or not {wanted}, or too long")
    return found


def _number(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point() or not _finite(tensor):
        raise FileError(f"its {name[:60]} holds something else than finite numbers")
    return tensor


def _finite(tensor: Tensor) -> bool:
    """By its extremes, which a NaN takes over: a test of every element would need room for its answers."""
    return not tensor.numel() or all(bool(bound.isfinite()) for bound in tensor.float().aminmax())
