"""A trained model: preparation of inputs, network, head and names, in memory and as one file.

    model.top_k(inputs, k)         the best labels of rows of features, or of texts
    model.evaluate(part)           every measure on a part of a dataset
    model.save(path), load(path)   one .safetensors

The file is a `container` of kind "model" and version 1. Its header:

    network    {"class": "fc", "recall", "cnn" or "lstm", and what its `config` says}
    head       {"class": "holographic", "dim", "codebook", "seed", "loss", "learn"} or {"class": "linear", "loss"}
    normalise  whether rows of features are scaled to length 1
    tokens     of a text network: {"kind", "lowercase", "longest": tokens read of a text, "merges": how many}
    about      how it was trained: data, options, seconds, metrics; any JSON

and its tensors:

    network.*, head.*   the parameters, in any floating-point precision; what the seed draws again is not stored.
                        Of recall: weights in four bits, and the training rows and label sets that it recalls
    label_counts        (L) int32, how often each label occurs in training
    points              (1) int64, in how many points
    label_names         where known: UTF-8 lines, deflated, as uint8
    words, idf          of a model that makes features of texts: its words as lines, deflated, and (words) float32
    tokens, merges      of a text network: its tokenizer's, as lines, deflated; a merge is two tokens with a blank

A file is refused unless every number in it is finite, every tensor has the shape that the rest of the file implies, and
nothing is left over. Only lines unpack to more than the file has: to 1 kB a line on average and 64 kB, no more.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from holobind import container, metrics
from holobind.data import Part, Tfidf
from holobind.errors import DataError, FileError, HolobindError, OptionError
from holobind.head import HolographicHead, LinearHead
from holobind.labelspace import merged
from holobind.networks import FC, AttentionLstm, Network, Recall, SparseExamples, XmlCnn
from holobind.networks.inputs import Examples, portions

if TYPE_CHECKING:
    from holobind.text import Tokenizer

Head = HolographicHead | LinearHead
Inputs = Any  # a scipy sparse matrix, a dense array, or a sequence of texts
Progress = Callable[[str, float], None]

VERSION = 1
BATCH = 1024
LONGEST = 500  # tokens of a text
NETWORKS: dict[str, type[Network]] = {"fc": FC, "recall": Recall, "cnn": XmlCnn, "lstm": AttentionLstm}
LARGEST = float(np.finfo(np.float32).max)
# What a header that makes no sense leads to while a model is built as it says.
REFUSED = (HolobindError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


class Model(nn.Module):
    """A network and its head, with what they need to take raw inputs and to name labels."""

    def __init__(
        self,
        network: Network,
        head: Head,
        seen: metrics.Frequencies,
        *,
        normalise: bool = True,
        tfidf: Tfidf | None = None,
        tokenizer: "Tokenizer | None" = None,
        longest: int = LONGEST,
        label_names: Sequence[str] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.head = network, head
        self.seen, self.normalise, self.tfidf = seen, normalise, tfidf
        self.tokenizer, self.longest = tokenizer, longest
        self.label_names = None if label_names is None else list(label_names)
        self.about = about or {}

    @property
    def n_labels(self) -> int:
        return self.head.n_labels

    @property
    def reads_texts(self) -> bool:
        """Whether it was trained on texts, and not on features alone."""
        return self.tfidf is not None or self.tokenizer is not None

    def forward(self, inputs: Any, labels: Tensor, offsets: Tensor) -> Tensor:
        """The loss of a batch: what training calls, also from several processes."""
        return self.head.loss(self.network(inputs), labels, offsets)

    def examples(self, inputs: Inputs) -> Examples:
        """Inputs as the network takes them: features in rows, or texts if the model was trained on texts."""
        texts = _texts(inputs)
        if texts is not None and self.tokenizer is not None:
            return self.tokenizer.encode(texts, self.longest)
        if texts and self.tfidf is None:
            raise DataError("this model was trained on features and cannot read texts; give it rows of features")
        if texts is not None and self.tfidf is not None:
            return SparseExamples(self.tfidf.transform(texts), self.normalise)
        wanted = self.network.n_features
        if wanted is None:
            raise DataError("this model reads texts; got features")
        X: Any = sparse.csr_array((0, wanted), dtype=np.float32) if texts is not None else _rows(inputs)
        if X.ndim != 2 or X.shape[1] != wanted:
            raise DataError(f"this model reads {wanted} features a row; got a matrix of shape {X.shape}")
        X = X.tocsr()
        if not X.has_canonical_format:  # the length of a row counts a feature once
            X = X.copy()
            X.sum_duplicates()
        if X.nnz and not (X.data.min() >= -LARGEST and X.data.max() <= LARGEST):  # false also for NaN
            raise DataError("the features hold a NaN or a number too large for float32")
        return SparseExamples(X, self.normalise)

    def outputs(self, inputs: Inputs, progress: Progress | None = None) -> Iterator[tuple[NDArray[np.intp], Tensor]]:
        """What the network gives for batches of rows, and which rows they are; every row once."""
        examples = inputs if hasattr(inputs, "batch") else self.examples(inputs)
        done = 0
        device = next(self.parameters()).device
        was = self.training
        self.eval()
        try:
            for index in portions(examples, np.arange(len(examples)), BATCH):
                with torch.inference_mode():
                    found = self.network(examples.batch(index).to(device))
                yield index, found
                done += len(index)
                if progress:
                    progress("predicting", done / len(examples))
        finally:
            self.train(was)

    def top_k(
        self, inputs: Inputs, k: int = 5, *, together: bool = False, progress: Progress | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The k best labels of each row: their scores, best first, and their numbers.  Shapes: -> 2 x (rows, k)

        together   all processes of torch.distributed call this with the same inputs; each scores its share of the
                   labels, and all get the same result
        """
        if not 1 <= k <= self.n_labels:
            raise OptionError(f"k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        examples = self.examples(inputs)
        scores, ids = np.empty((len(examples), k), np.float32), np.empty((len(examples), k), np.int64)
        for index, h in self.outputs(examples, progress):
            with torch.inference_mode():
                best, found = self._shared_top_k(h, k) if together else self.head.top_k(h, k)
            scores[index], ids[index] = best.float().cpu().numpy(), found.cpu().numpy()
        return scores, ids

    def _shared_top_k(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The top k of all labels from those of each process's share; 12 k bytes a row come from every other one."""
        if not torch.distributed.is_initialized():
            return self.head.top_k(h, k)
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        shares = [self.head.share(r, world) for r in range(world)]
        mine = self.head.top_k(h, k, labels=shares[rank])
        parts: list[list[Tensor]] = []
        for found in mine:
            room = found.new_zeros(len(h), k)  # a share may hold fewer than k
            room[:, : found.shape[1]] = found
            parts.append([torch.empty_like(room) for _ in range(world)])
            torch.distributed.all_gather(parts[-1], room)
        sizes = [min(k, last - first) for first, last in shares]
        cut = [(scores[:, :n], ids[:, :n]) for scores, ids, n in zip(*parts, sizes, strict=True)]
        return merged(cut, k)

    def scores(self, inputs: Inputs) -> NDArray[np.float32]:
        """The score of every label.  Shapes: -> (rows, L)"""
        examples = self.examples(inputs)
        found = np.empty((len(examples), self.n_labels), np.float32)
        for index, h in self.outputs(examples):
            with torch.inference_mode():
                found[index] = self.head.scores(h).float().cpu().numpy()
        return found

    def present(self, inputs: Inputs, threshold: float = 0.5) -> Any:
        """All labels that pass the head's threshold, as an indicator matrix.  Shapes: -> sparse (rows, L)"""
        examples = self.examples(inputs)
        rows, labels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for index, h in self.outputs(examples):
            with torch.inference_mode():
                found, offsets = (part.cpu().numpy() for part in self.head.present(h, threshold))
            rows.append(np.repeat(index, np.diff(offsets, append=len(found))))
            labels.append(found)
        at = np.concatenate(rows), np.concatenate(labels)
        return sparse.csr_array((np.ones(len(at[0]), np.int32), at), shape=(len(examples), self.n_labels))

    def evaluate(
        self,
        part: Part,
        k: int = 5,
        *,
        label_names: Sequence[str] | None = None,
        dataset: str = "",
        together: bool = False,
        progress: Progress | None = None,
    ) -> metrics.Evaluation:
        """Every measure on a part; propensities are those of the training part that the model has seen.

        label_names   of the part. Where they are not the model's, labels are matched by name, and one that the model
                      does not know is one that it never finds
        together      as in `top_k`
        """
        Y, seen, inputs = part.Y, self.seen, self.inputs_of(part)
        if label_names is not None and self.label_names is not None and list(label_names) != self.label_names:
            Y, seen = self._renumbered(Y, label_names)
        elif Y.shape[1] != self.n_labels:
            raise DataError(f"this model has {self.n_labels} labels; the data has {Y.shape[1]}")
        top = self.top_k(inputs, min(k, self.n_labels), together=together, progress=progress)[1]
        return metrics.evaluate(Y, top, seen if seen.points > 2 else None, k=k, dataset=dataset)

    def _renumbered(self, Y: Any, names: Sequence[str]) -> tuple[Any, metrics.Frequencies]:
        """Labels by the model's numbers; those that it does not know follow after its own."""
        number = {name: i for i, name in enumerate(self.label_names or ())}
        occurring = np.unique(Y.indices)
        to = np.zeros(Y.shape[1], np.int64)
        for label in occurring.tolist():
            to[label] = number.setdefault(names[label], len(number))
        if len(occurring) and to[occurring].min() >= self.n_labels:
            raise DataError(
                f"this model knows none of the {len(occurring)} labels of the data; one is {names[occurring[0]][:40]!r}"
            )
        renumbered = sparse.csr_array((Y.data, to[Y.indices], Y.indptr), shape=(Y.shape[0], len(number)))
        renumbered.sort_indices()
        counts = np.pad(self.seen.counts, (0, len(number) - self.n_labels))
        return renumbered, metrics.Frequencies(counts, self.seen.points)

    def inputs_of(self, part: Part) -> Inputs:
        """What of a part this model reads: its texts, if it was trained on texts, or its features."""
        if not self.reads_texts:
            return part.X
        if part.texts is None:
            raise DataError("this model was trained on texts; the data has only features")
        return part.texts

    def sizes(self) -> dict[str, Any]:
        """Parameters of the output layer and of the whole, beside those with a linear output layer.

        The layers that give the output have (in + 1) parameters for each of its elements: d, or L if it were linear.
        """
        layers: list[nn.Module] = [self.head] if self.head.weight is not None else self.network.last
        output = sum(_n_weights(layer) for layer in layers)
        whole = self.network.n_weights() + sum(p.numel() for p in self.head.parameters())
        width = self.n_labels if isinstance(self.head, LinearHead) else self.head.codebook.dim
        linear = output * self.n_labels // width
        return {
            "parameters": whole,
            "output layer": output,
            "linear output layer": linear,
            "output layer smaller by": 1 - output / linear,
            "network smaller by": 1 - whole / (whole - output + linear),
        }

    def save(self, path: str | Path, *, dtype: torch.dtype = torch.float32) -> None:
        """Write the model to one file, whole or not at all; `dtype` is the precision of its matrices."""
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise OptionError(f"dtype must be torch.float32, float16 or bfloat16; got {dtype}")
        tensors: dict[str, Tensor] = {
            "label_counts": torch.from_numpy(self.seen.counts.astype(np.int32)),
            "points": torch.tensor([self.seen.points]),
        }
        for name, tensor in self.state_dict().items():
            tensors[name] = tensor.cpu()
            if not tensor.is_floating_point():
                continue
            if tensor.ndim > 1:
                tensors[name] = tensors[name].to(dtype)
            if not _finite(tensors[name]):
                why = "they do not fit, take torch.float32" if _finite(tensor) else "training has failed"
                raise DataError(f"{name} holds NaN or infinite numbers in {tensors[name].dtype}: {why}")
        if self.label_names is not None:
            tensors["label_names"] = container.packed(self.label_names)
        if self.tfidf is not None:
            tensors |= {"words": container.packed(self.tfidf.words), "idf": torch.from_numpy(self.tfidf.idf)}
        header = {
            "network": {"class": _name_of(self.network, NETWORKS), **self.network.config()},
            "head": _describe(self.head),
            "normalise": self.normalise,
            "about": self.about,
        }
        if _wants_tokens(self.network):
            if self.tokenizer is None:
                raise OptionError("a model with a text network is saved with its tokenizer; give it one")
            header["tokens"], packed = _pack(self.tokenizer, self.longest)
            tensors |= packed
        container.write(path, "model", VERSION, header, tensors)


def load(path: str | Path) -> Model:
    """Read a model that `Model.save` wrote. A file that is not one, damaged, or of a newer format is a FileError."""
    header, tensors = container.read(path, "model", VERSION)
    try:
        return _assemble(header, tensors)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except REFUSED as error:
        said = " ".join(str(error).split())[:200]
        raise FileError(f"{path} is not a model as holobind writes them ({type(error).__name__}: {said})") from error


def _assemble(header: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
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
    names = _lines(tensors, "label_names", len(counts)) if "label_names" in tensors else None
    tfidf = None
    if "words" in tensors:
        idf = _tensor(tensors, "idf", torch.float32)
        tfidf = Tfidf(_lines(tensors, "words", len(idf)), idf.numpy())
        if len(idf) != described.get("n_features"):
            raise FileError(
                f"it has {len(idf)} words for a network of {str(described.get('n_features'))[:20]} features"
            )
    tokenizer, longest = None, LONGEST
    if _wants_tokens(NETWORKS[kind]):
        tokenizer, longest = _unpack(header["tokens"], tensors, described["n_tokens"])
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
    if isinstance(network, Recall) and network.n_labels != len(counts):
        raise FileError(f"its network was solved for {str(network.n_labels)[:20]} labels; it has {len(counts)}")
    head = _head(head_said, network.out_features, len(counts), parts["head"])
    if not isinstance(header["normalise"], bool) or not isinstance(header["about"], dict):
        raise FileError("its header has other types than it should")
    return Model(
        network,
        head,
        seen,
        normalise=header["normalise"],
        tfidf=tfidf,
        tokenizer=tokenizer,
        longest=longest,
        label_names=names,
        about=header["about"],
    ).eval()


def _head(said: dict[str, Any], inside: int, n_labels: int, tensors: dict[str, Tensor]) -> Head:
    layer = inside if "weight" in tensors else None
    kind = said.pop("class")
    if kind not in ("holographic", "linear"):
        raise FileError(f"it has a head {str(kind)[:40]!r}; this holobind knows holographic and linear")
    width = said.get("dim") if kind == "holographic" else n_labels
    if not isinstance(width, int) or (tuple(tensors["weight"].shape) != (width, inside) if layer else width != inside):
        raise FileError(f"its head is of size {str(width)[:20]}, which does not fit its weights")
    if kind == "holographic" and ("labels" in said["learn"] or said["codebook"] == "naive"):
        # These vectors are stored, and would be drawn before they are compared: first see that the file has them.
        rows = -(-n_labels // width) if said["codebook"] == "orbit" else n_labels
        if not any(tuple(t.shape) == (rows, width) for name, t in tensors.items() if name.startswith("codebook.")):
            raise FileError(f"its head lacks its label vectors, {rows} of {width} numbers")
    bias = layer is None or "bias" in tensors
    if kind == "linear":
        head: Head = LinearHead(layer, n_labels, said["loss"], bias=bias)
    else:
        head = HolographicHead(
            layer, n_labels, width, said["codebook"], said["loss"], said["seed"], said["learn"], bias=bias
        )
    _check_shapes("head", dict(head.state_dict()), tensors)
    head.load_state_dict(tensors)
    return head


def _wants_tokens(network: Network | type[Network]) -> bool:
    return (network if isinstance(network, type) else type(network)) in (XmlCnn, AttentionLstm)


def _pack(tokenizer: "Tokenizer", longest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    merges = [f"{a} {b}" for a, b in tokenizer.merges]
    said = {"kind": tokenizer.kind, "lowercase": tokenizer.lowercase, "longest": longest, "merges": len(merges)}
    tensors = {"tokens": container.packed(tokenizer.tokens)}
    return said, tensors | ({"merges": container.packed(merges)} if merges else {})


def _unpack(said: dict[str, Any], tensors: dict[str, Tensor], n_tokens: Any) -> tuple["Tokenizer", int]:
    """A tokenizer as large as the network's embedding, whose shape is compared with its weights later."""
    from holobind.text import Tokenizer

    longest, n = said["longest"], said["merges"]
    stored = tensors["network.embedding.weight"].shape[:1]
    if type(longest) is not int or longest < 1 or type(n) is not int or (n_tokens,) != tuple(stored):
        raise FileError(f"its tokenizer does not fit a network of {str(n_tokens)[:20]} tokens")
    if not 0 <= n <= n_tokens:
        raise FileError(f"its tokenizer has {str(n)[:20]} merges for {n_tokens} tokens")
    merges = [line.split(" ") for line in _lines(tensors, "merges", n)] if n else []
    if any(len(pair) != 2 for pair in merges):
        raise FileError("its merges are not two tokens each")
    tokens = _lines(tensors, "tokens", n_tokens)
    return Tokenizer(tokens, [(a, b) for a, b in merges], said["kind"], said["lowercase"]), longest


def _describe(head: Head) -> dict[str, Any]:
    if isinstance(head, LinearHead):
        return {"class": "linear", "loss": head.kind}
    if head.drawn is None:
        raise OptionError("a head with a codebook of your own cannot be saved; name one: 'orbit' or 'random'")
    codebook, seed = head.drawn
    return {
        "class": "holographic",
        "dim": head.codebook.dim,
        "codebook": codebook,
        "seed": seed,
        "loss": head.kind,
        "learn": list(head.learn),
    }


def _name_of(network: Network, known: dict[str, type[Network]]) -> str:
    for name, kind in known.items():
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


def _n_weights(layer: nn.Module) -> int:
    if isinstance(layer, Network):
        return layer.n_weights()
    return sum(p.numel() for name, p in layer.named_parameters() if name in ("weight", "bias"))


def _tensor(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    tensor = tensors.pop(name)
    if tensor.dtype != dtype or tensor.ndim != 1 or not len(tensor):
        raise FileError(f"its {name} has {tensor.dtype} of shape {tuple(tensor.shape)}")
    return _number(name, tensor) if dtype.is_floating_point else tensor


def _lines(tensors: dict[str, Tensor], name: str, wanted: int) -> list[str]:
    found = container.unpacked(_tensor(tensors, name, torch.uint8), wanted)
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


def _texts(inputs: Inputs) -> list[str] | None:
    """The inputs as a list, if they are texts or nothing at all."""
    if isinstance(inputs, str):
        raise DataError(f"texts come in a list; got one text, {inputs[:40]!r}")
    if getattr(inputs, "ndim", None) == 1 and hasattr(inputs, "tolist"):  # an array or a column of a table
        inputs = inputs.tolist()
    if not isinstance(inputs, Sequence) or (inputs and not isinstance(inputs[0], str)):
        return None
    for i, text in enumerate(inputs):
        if not isinstance(text, str):
            raise DataError(f"the first input is a text, but number {i + 1} is {type(text).__name__}")
    return list(inputs)


def _rows(inputs: Inputs) -> Any:
    if sparse.issparse(inputs):
        return inputs
    try:
        dense = np.atleast_2d(np.asarray(inputs, np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"inputs must be rows of features, sparse or dense, or texts; {error}") from error
    if dense.ndim != 2:
        raise DataError(f"inputs must be rows of features; got an array of shape {dense.shape}")
    return sparse.csr_array(dense)
