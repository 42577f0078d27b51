"""A trained model: preparation of inputs, network, head and names.

model.top_k(inputs, k)         the best labels of rows of features, or of texts
model.evaluate(part)           every measure on a part of a dataset
model.save(path), load(path)   one .safetensors (`model_file`)
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from holobind import metrics, model_file
from holobind._threads import threaded
from holobind._types import ProgressCallback
from holobind.codebooks.base import merged
from holobind.codebooks.ragged import checked_labels
from holobind.data import Split, Tfidf
from holobind.data.batches import Examples, SparseExamples, portions
from holobind.errors import DataError, OptionError
from holobind.heads import Head, LinearHead
from holobind.networks import Network

if TYPE_CHECKING:
    from holobind.data.tokenizer import Tokenizer

Inputs = Any  # a scipy sparse matrix, a dense array, or a sequence of texts
Result = TypeVar("Result")

BATCH, LEAST = 2048, 64  # rows that are predicted in one go: at most, and at least, if so many are left
MAX_TOKENS = 500  # tokens of a text
LARGEST = float(np.finfo(np.float32).max)


class Model(nn.Module):
    """A network and its head, with what they need to take raw inputs and to name labels.

    order   which label is the head's first, its second, and so on, if that is not the order of their numbers
    """

    _label_order: Tensor | None
    _places: Tensor | None

    def __init__(
        self,
        network: Network,
        head: Head,
        frequencies: metrics.Frequencies,
        *,
        normalise: bool = True,
        tfidf: Tfidf | None = None,
        tokenizer: "Tokenizer | None" = None,
        max_tokens: int = MAX_TOKENS,
        label_names: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        label_order: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.head = network, head
        self.frequencies, self.normalise, self.tfidf = frequencies, normalise, tfidf
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.label_names = None if label_names is None else list(label_names)
        self.metadata = metadata or {}
        order = None if label_order is None else np.array(label_order, np.int64)
        if order is not None and not np.array_equal(np.sort(order), np.arange(head.n_labels)):
            raise OptionError(f"order must name each of the {head.n_labels} labels once")
        # They move with the model, but are not weights.
        self.register_buffer("_label_order", None if order is None else torch.from_numpy(order), persistent=False)
        places = None if order is None else torch.from_numpy(np.argsort(order))
        self.register_buffer("_places", places, persistent=False)

    @property
    def label_order(self) -> NDArray[np.int64] | None:
        return None if self._label_order is None else self._label_order.cpu().numpy()

    @property
    def n_labels(self) -> int:
        return self.head.n_labels

    @property
    def reads_texts(self) -> bool:
        """Whether it was trained on texts, and not on features alone."""
        return self.tfidf is not None or self.tokenizer is not None

    def forward(self, inputs: Any, labels: Tensor, offsets: Tensor) -> Tensor:
        """The loss of a batch: what training calls, also from several processes."""
        return self.head.loss(self.network(inputs), self.places(labels), offsets)

    def places(self, labels: Tensor) -> Tensor:
        """What the head's numbers of some labels are."""
        if self._places is None:
            return labels
        checked_labels(labels, self.n_labels)
        return self._places[labels.to(self._places.device, torch.long)]

    def arranged(self, Y: Any) -> Any:
        """Label sets by the head's numbers.  Shapes: sparse (rows, L) -> sparse (rows, L)"""
        return Y if self._places is None else _renumbered(Y, self._places.cpu().numpy(), self.n_labels)

    def best(self, h: Tensor, k: int, *, distributed: bool = False) -> tuple[Tensor, Tensor]:
        """The k best labels by what the network gave.  Shapes: (rows, in) -> 2 x (rows, k)"""
        with torch.inference_mode():
            scores, found = self._shared_top_k(h, k) if distributed else self.head.top_k(h, k)
            return scores, found if self._label_order is None else self._label_order[found]

    def examples(self, inputs: Inputs) -> Examples:
        """Inputs as the network takes them: features in rows, or texts if the model was trained on texts."""
        texts = _texts(inputs)
        if texts is not None and self.tokenizer is not None:
            return self.tokenizer.encode(texts, self.max_tokens)
        if texts and self.tfidf is None:
            raise DataError("this model was trained on features and cannot read texts; give it rows of features")
        if texts is not None and self.tfidf is not None:
            return SparseExamples(self.tfidf.transform(texts), self.normalise)
        wanted = self.network.n_features
        if wanted is None:
            raise DataError("this model reads texts; got features")
        X: Any = sparse.csr_array((0, wanted), dtype=np.float32) if texts is not None else _rows(inputs)
        if X.ndim != 2 or X.shape[1] != wanted:
            hint = "" if self.tfidf is None else ", which it makes of texts: give it those, or train with --features"
            raise DataError(f"this model reads {wanted} features a row{hint}; got a matrix of shape {X.shape}")
        X = X.tocsr()
        if not X.has_canonical_format:  # the length of a row counts a feature once
            X = X.copy()
            X.sum_duplicates()
        if X.nnz and not (X.data.min() >= -LARGEST and X.data.max() <= LARGEST):  # false also for NaN
            raise DataError("the features hold a NaN or a number too large for float32")
        return SparseExamples(X, self.normalise)

    def outputs(
        self,
        inputs: Inputs,
        then: Callable[[Tensor], Result],
        progress: ProgressCallback | None = None,
        *,
        side_by_side: bool = True,
    ) -> Iterator[tuple[NDArray[np.intp], Result]]:
        """What `then` makes of the network's output for batches of rows, and which rows they are; every row once.

        On the CPU, batches are worked on side by side, each on one thread, unless they are to come one by one.
        """
        examples = inputs if hasattr(inputs, "batch") else self.examples(inputs)
        done = 0
        device = next(self.parameters(), torch.empty(0)).device

        def work(index: NDArray[np.intp]) -> tuple[NDArray[np.intp], Result]:
            with torch.inference_mode():
                return index, then(self.network(examples.batch(index).to(device)))

        was = self.training
        self.eval()
        self.network.prepare()
        try:
            aside = side_by_side and device.type == "cpu"
            even = -(-len(examples) // torch.get_num_threads()) if aside else BATCH
            batches = portions(examples, np.arange(len(examples)), min(BATCH, max(LEAST, even)))
            for index, found in threaded(work, batches) if aside else map(work, batches):
                yield index, found
                done += len(index)
                if progress:
                    progress("predicting", done / len(examples))
        finally:
            self.train(was)

    def top_k(
        self, inputs: Inputs, k: int = 5, *, distributed: bool = False, progress: ProgressCallback | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The k best labels of each row: their scores, best first, and their numbers.  Shapes: -> 2 x (rows, k)

        together   all processes of torch.distributed call this with the same inputs; each scores its share of the
                   labels, and all get the same result
        """
        if not 1 <= k <= self.n_labels:
            raise OptionError(f"k must be from 1 to the number of labels, {self.n_labels}; got {k}")
        examples = self.examples(inputs)
        scores, ids = np.empty((len(examples), k), np.float32), np.empty((len(examples), k), np.int64)

        def best(h: Tensor) -> tuple[Tensor, Tensor]:
            return self.best(h, k, distributed=distributed)

        for index, (values, found) in self.outputs(examples, best, progress, side_by_side=not distributed):
            scores[index], ids[index] = values.float().cpu().numpy(), found.cpu().numpy()
        return scores, ids

    def _shared_top_k(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The top k of all labels from those of each process's share; 12 k bytes a row come from every other one."""
        if not torch.distributed.is_initialized():
            return self.head.top_k(h, k)
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        shares = [self.head.label_range(r, world) for r in range(world)]
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
        for index, scores in self.outputs(examples, self.head.scores):
            found[index] = (scores if self._places is None else scores[:, self._places]).float().cpu().numpy()
        return found

    def present(self, inputs: Inputs, threshold: float = 0.5) -> Any:
        """All labels that pass the head's threshold, as an indicator matrix.  Shapes: -> sparse (rows, L)"""
        examples = self.examples(inputs)
        rows, labels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for index, (found, offsets) in self.outputs(examples, lambda h: self.head.present(h, threshold)):
            rows.append(np.repeat(index, np.diff(offsets.cpu().numpy(), append=len(found))))
            labels.append((found if self._label_order is None else self._label_order[found]).cpu().numpy())
        at = np.concatenate(rows), np.concatenate(labels)
        return sparse.csr_array((np.ones(len(at[0]), np.int32), at), shape=(len(examples), self.n_labels))

    def evaluate(
        self,
        part: Split,
        k: int = 5,
        *,
        label_names: Sequence[str] | None = None,
        dataset: str = "",
        distributed: bool = False,
        progress: ProgressCallback | None = None,
    ) -> metrics.Evaluation:
        """Every measure on a part; propensities are those of the training part that the model has seen.

        label_names   of the part. Where they are not the model's, labels are matched by name, and one that the model
                      does not know is one that it never finds
        together      as in `top_k`
        """
        Y, seen, inputs = part.Y, self.frequencies, self.inputs_of(part)
        if label_names is not None and self.label_names is not None and list(label_names) != self.label_names:
            Y, seen = self._by_name(Y, label_names)
        elif Y.shape[1] != self.n_labels:
            raise DataError(f"this model has {self.n_labels} labels; the data has {Y.shape[1]}")
        top = self.top_k(inputs, min(k, self.n_labels), distributed=distributed, progress=progress)[1]
        return metrics.evaluate(Y, top, seen if seen.points > 2 else None, k=k, dataset=dataset)

    def _by_name(self, Y: Any, names: Sequence[str]) -> tuple[Any, metrics.Frequencies]:
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
        counts = np.pad(self.frequencies.counts, (0, len(number) - self.n_labels))
        return _renumbered(Y, to, len(number)), metrics.Frequencies(counts, self.frequencies.points)

    def inputs_of(self, part: Split) -> Inputs:
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
        width = width if self.head.weight is None else len(self.head.weight)
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
        model_file.write(path, self, dtype)


def load(path: str | Path) -> Model:
    """Read a model that `Model.save` wrote. A file that is not one, damaged, or of a newer format is a FileError."""
    return Model(**model_file.read(path)).eval()


def _renumbered(Y: Any, to: NDArray[np.int64], n_labels: int) -> Any:
    """Label sets with other numbers.  Shapes: sparse (rows, L) -> sparse (rows, n_labels)"""
    found = sparse.csr_array((Y.data.copy(), to[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels))
    found.sort_indices()  # in place, also its data
    return found


def _n_weights(layer: nn.Module) -> int:
    if isinstance(layer, Network):
        return layer.n_weights()
    return sum(p.numel() for name, p in layer.named_parameters() if name in ("weight", "bias"))


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
