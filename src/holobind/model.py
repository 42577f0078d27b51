"""A trained model: input preparation, network, head and label names.

model.top_k(inputs, k)         the k best labels of rows of features, or of texts
model.rank(inputs, k)          the same, with calibrated probabilities
model.choose(inputs)           as many labels for each row as have the largest expected F1
model.explain([text])          what made the score of a label, as parts that add up to it
model.evaluate(split)          every metric on a split of a dataset
model.update(inputs, labels)   a model with more rows and labels; model.forget: with fewer (`learning_on`)
model.save(path), load(path)   one .safetensors file (`model_file`)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from holobind import metrics, model_file
from holobind._columns import as_list, as_texts
from holobind._processes import ALONE, Processes
from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback, RowIndex
from holobind.calibration import Calibration
from holobind.codebooks.ragged import checked_labels
from holobind.data import Split, Tfidf
from holobind.data.batches import Examples, SparseExamples, TextExamples, prediction_batches
from holobind.data.csr import checked_csr, widen
from holobind.data.encoder_features import beside
from holobind.errors import DataError, OptionError
from holobind.heads import Head
from holobind.heads.added_scores import AddedScores, Scorer
from holobind.label_filter import Allowed
from holobind.label_sets import evaluate_sets
from holobind.label_text import LabelText
from holobind.learning_on import LearningOn
from holobind.networks import Network
from holobind.predictions import LabelPredictions, distributed_top_k
from holobind.ridge_knn import ExtraScores

if TYPE_CHECKING:
    from holobind.data.encoder_features import EncoderFeatures
    from holobind.data.tokenizer import Tokenizer
    from holobind.data.vectorizers import SklearnFeatures

Inputs = Any  # a scipy sparse matrix, a dense array, or a sequence of texts
Result = TypeVar("Result")

MAX_BATCH_ROWS, MIN_BATCH_ROWS = 2048, 64  # of prediction; a last batch may have fewer
DEFAULT_MAX_TOKENS = 500  # of a text


class Model(LabelPredictions, LearningOn, nn.Module):
    """A network and its head, with what they need to take raw inputs and to name labels.

    frequencies   how often each label occurs in training
    tfidf         how texts become features
    encoder       embeddings of texts that are features beside those of `tfidf`
    label_order   the label of each of the head's outputs, where the head orders labels differently
    metadata      how it was made: options, data, metrics; any JSON. A file does not keep "timings"
    extra_scores  neighbours and label trees, which are added to a trained network
    calibration   of scores to probabilities, by rows that were held out; None if there were none
    allowed       (L) which labels may be predicted, in every request; None: all (`restrict`)
    label_text    texts of labels, which raise the scores of labels with few or no training rows
    """

    _label_order: Tensor | None
    _head_labels: Tensor | None

    def __init__(
        self,
        network: Network,
        head: Head,
        frequencies: metrics.Frequencies,
        *,
        normalise: bool = True,
        tfidf: "Tfidf | SklearnFeatures | None" = None,
        encoder: "EncoderFeatures | None" = None,
        tokenizer: "Tokenizer | None" = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        label_names: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        label_order: IntArray | None = None,
        calibration: Calibration | None = None,
        extra_scores: ExtraScores | None = None,
        allowed: Allowed | None = None,
        label_text: LabelText | None = None,
    ) -> None:
        super().__init__()
        self.network, self.head, self.extra_scores = network, head, extra_scores
        self.frequencies, self.normalise, self.tfidf, self.encoder = frequencies, normalise, tfidf, encoder
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.label_names = None if label_names is None else list(label_names)
        self.metadata, self.calibration, self.allowed = metadata or {}, calibration, allowed
        self.label_text = label_text
        order = None if label_order is None else np.array(label_order, np.int64)
        if order is not None and not np.array_equal(np.sort(order), np.arange(head.n_labels)):
            raise OptionError(f"label_order must have each of the {head.n_labels} labels once")
        # Buffers move with the model; these are not part of its state.
        self.register_buffer("_label_order", None if order is None else torch.from_numpy(order), persistent=False)
        head_labels = None if order is None else torch.from_numpy(np.argsort(order))
        self.register_buffer("_head_labels", head_labels, persistent=False)

    @property
    def label_order(self) -> IntArray | None:
        return None if self._label_order is None else self._label_order.cpu().numpy()

    @property
    def n_labels(self) -> int:  # type: ignore[override] # a plain attribute of the mixin
        return self.head.n_labels

    @property
    def reads_texts(self) -> bool:
        """Whether it was trained on texts; otherwise it reads features."""
        return self.tfidf is not None or self.tokenizer is not None

    def forward(self, inputs: Any, labels: Tensor, offsets: Tensor) -> Tensor:
        """The loss of a batch. DistributedDataParallel wraps this call."""
        return self.head.loss(self.network(inputs), self.head_label_ids(labels), offsets)

    def head_label_ids(self, labels: Tensor) -> Tensor:
        """The head's ids of some labels.  Shapes: (n) -> (n)"""
        if self._head_labels is None:
            return labels
        checked_labels(labels, self.n_labels)
        return self._head_labels[labels.to(self._head_labels.device, torch.long)]

    def to_head_labels(self, Y: CsrArray) -> CsrArray:
        """Label sets in the head's ids.  Shapes: sparse (rows, L) -> sparse (rows, L)"""
        return Y if self._head_labels is None else _relabel(Y, self._head_labels.cpu().numpy(), self.n_labels)

    def top_k_of_output(self, h: Tensor, k: int, *, distributed: bool = False) -> tuple[Tensor, Tensor]:
        """The k best labels of the network's outputs h.  Shapes: (rows, in) -> 2 x (rows, k)"""
        with torch.inference_mode():
            scores, found = distributed_top_k(self.head, h, k) if distributed else self.head.top_k(h, k)
            return scores, found if self._label_order is None else self._label_order[found]

    def examples(self, inputs: Inputs, *, cache: bool = False, on_progress: ProgressCallback | None = None) -> Examples:
        """Inputs as the network takes them. They are rows of features, or texts if the model reads texts.

        `empty_rows()` of the examples says which of them have no feature that the model knows.

        cache   keep the embeddings of an encoder in the cache directory
        """
        if hasattr(inputs, "empty_rows"):
            return inputs
        inputs = as_list(inputs)
        texts = as_texts(inputs)
        if texts is not None and self.tokenizer is not None:
            tokens = self.tokenizer.encode(texts, self.max_tokens)
            if self.tfidf is None:
                return tokens
            return TextExamples(SparseExamples(self.tfidf.transform(texts), self.normalise), tokens)
        if texts and self.tfidf is None:
            raise DataError("this model was trained on features and cannot read texts; give it rows of features")
        if texts is not None and self.tfidf is not None:
            X, embeddings = self.tfidf.transform(texts), None
            if self.encoder is not None:
                embeddings = self.encoder.embed(texts, cache=cache, on_progress=on_progress)
                X = beside(X, embeddings, self.encoder.weight)
            text_rows = None
            if self.label_text is not None:
                text_rows = self.label_text.rows(texts, embeddings, cache=cache, on_progress=on_progress)
            return SparseExamples(X, self.normalise, text_rows)
        wanted = self.network.n_features
        if wanted is None or self.tokenizer is not None:
            raise DataError("this model reads texts; got features")
        rows: Any = sparse.csr_array((0, wanted), dtype=np.float32) if texts is not None else _feature_rows(inputs)
        if rows.ndim != 2 or rows.shape[1] != wanted:
            hint = "" if self.tfidf is None else ", which it makes from texts: give it texts, or train with --no-text"
            raise DataError(f"this model reads {wanted} features a row{hint}; got a matrix of shape {rows.shape}")
        if self.label_text is not None:
            raise DataError("this model compares texts with label texts; give it texts, not rows of features")
        return SparseExamples(
            checked_csr(rows, "the features"), self.normalise
        )  # each feature once: rows have a length

    def map_outputs(
        self,
        inputs: Inputs,
        then: Callable[[Scorer, Tensor], Result],
        on_progress: ProgressCallback | None = None,
        *,
        parallel: bool = True,
        processes: Processes = ALONE,
    ) -> Iterator[tuple[RowIndex, Result]]:
        """Apply `then` to a head and the network's outputs, batch by batch: yields (rows, result); each row comes once.

        The head is the model's, with the scores that the network adds for these rows. On the CPU, batches run in
        parallel, each on one thread.

        parallel   False: one batch after the other, as collective operations of several processes need it
        processes  that share the batches: this one gets only its own
        """
        examples = self.examples(inputs)
        done = 0

        def work(rows: RowIndex) -> tuple[RowIndex, Result]:
            with torch.inference_mode():
                h = self.outputs(examples, rows)
                scorer = self.scorer(examples, rows, h.device)
                if self.label_text is not None and isinstance(examples, SparseExamples):
                    texts = examples.text_rows.take(rows)
                    scorer = self.label_text.add_to(scorer, h, texts, self.frequencies.counts)
                return rows, then(scorer, h)

        was_training = self.training
        self.eval()
        self.network.prepare()
        if self.label_text is not None:
            self.label_text.prepare()
        if self.extra_scores is not None:
            self.extra_scores.prepare(self.network, self.head, self.label_order)
        try:
            parallel = parallel and next(self.parameters(), torch.empty(0)).device.type == "cpu"
            even = -(-len(examples) // (torch.get_num_threads() * processes.size)) if parallel else MAX_BATCH_ROWS
            max_rows = min(MAX_BATCH_ROWS, max(MIN_BATCH_ROWS, even))
            batches = prediction_batches(examples, np.arange(len(examples)), max_rows)
            own = (batch for place, batch in enumerate(batches) if processes.takes(place))
            for rows, result in threaded(work, own) if parallel else map(work, own):
                yield rows, result
                done += len(rows)
                if on_progress:
                    on_progress("predicting", done * processes.size / len(examples))
        finally:
            self.train(was_training)

    def outputs(self, examples: Examples, rows: RowIndex) -> Tensor:
        """The network's outputs of some rows, with the residuals of neighbours that are added to them.

        Shapes: -> (n, in)
        """
        h, extra = self.network.predict_rows(examples, rows), self.extra_scores
        return h if extra is None else extra.add_to_output(h, examples, rows, self.network, self.head, self.label_order)

    def scorer(self, examples: Examples, rows: RowIndex, device: torch.device | str = "cpu") -> Scorer:
        """The head with the scores that neighbours and label trees add for some rows, without label texts."""
        added = self._added_scores(examples, rows, device)
        return self.head if added is None else AddedScores(self.head, *added)

    def _added_scores(
        self, examples: Examples, rows: RowIndex, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, Tensor] | None:
        """What is added to the head's scores of some labels, in the head's ids.  Shapes: -> (n, m), (n, m)"""
        if self.extra_scores is None:
            return self.network.added_scores(examples, rows)
        added = self.extra_scores.added_scores(examples, rows)
        if added is None:
            return None
        values, labels = map(torch.from_numpy, added)
        if self._head_labels is not None:
            labels = torch.where(labels >= 0, self._head_labels.cpu()[labels.clamp(min=0)], -1)
        return values.to(device), labels.to(device)

    def scores(self, inputs: Inputs) -> FloatArray:
        """The score of every label.  Shapes: -> (rows, L)"""
        examples = self.examples(inputs)
        found = np.empty((len(examples), self.n_labels), np.float32)
        for index, scores in self.map_outputs(examples, lambda head, h: head.scores(h)):
            found[index] = (scores if self._head_labels is None else scores[:, self._head_labels]).float().cpu().numpy()
        return found

    def labels_above(self, inputs: Inputs, threshold: float = 0.5) -> CsrArray:
        """All labels above the threshold that may be predicted, as an indicator matrix.  Shapes: -> sparse (rows, L)"""
        examples = self.examples(inputs)
        rows, labels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for index, (found, offsets) in self.map_outputs(examples, lambda head, h: head.labels_above(h, threshold)):
            rows.append(np.repeat(index, np.diff(offsets.cpu().numpy(), append=len(found))))
            labels.append((found if self._label_order is None else self._label_order[found]).cpu().numpy())
        at = np.concatenate(rows), np.concatenate(labels)
        if self.allowed is not None:
            kept = self.allowed[at[1]]
            at = at[0][kept], at[1][kept]
        return sparse.csr_array((np.ones(len(at[0]), np.int32), at), shape=(len(examples), self.n_labels))

    def evaluate(
        self,
        split: Split,
        k: int = 5,
        *,
        label_names: Sequence[str] | None = None,
        dataset: str = "",
        distributed: bool = False,
        processes: Processes = ALONE,
        on_progress: ProgressCallback | None = None,
    ) -> metrics.Evaluation:
        """Every metric on a split; propensities come from the label frequencies of training.

        label_names   of the split. Where they are not the model's, labels are matched by name; a label that the model
                      does not know counts as missed
        distributed   as in `top_k`
        processes     as in `rank`
        """
        Y, _ = self.labels_of(split, label_names)
        examples = self.examples(self.inputs_of(split), cache=True, on_progress=on_progress)
        counts = np.pad(self.frequencies.counts, (0, Y.shape[1] - self.n_labels))
        frequencies = metrics.Frequencies(counts, self.frequencies.n_rows)
        n_allowed = self.n_labels if self.allowed is None else int(self.allowed.sum())
        width = k if self.calibration is None else max(k, self._n_candidates())
        ranking = self.rank(
            examples, min(width, n_allowed), distributed=distributed, processes=processes, on_progress=on_progress
        )
        trained = frequencies if frequencies.n_rows > 2 else None
        found = metrics.evaluate(Y, ranking.ids, trained, k=k, dataset=dataset)
        return found if self.calibration is None else replace(found, **evaluate_sets(ranking, Y, self.calibration))

    def labels_of(
        self, split: Split, label_names: Sequence[str] | None = None
    ) -> tuple[CsrArray, Sequence[str] | None]:
        """The label sets of a split in the model's ids, and the names of these; unknown labels get ids after its own.

        label_names   of the split
        """
        Y, known = checked_csr(split.Y, "Y"), self.label_names
        if label_names is None or known is None or list(label_names) == known:
            if self.label_text is not None and Y.shape[1] < self.n_labels:
                Y = widen(Y, self.n_labels)  # labels that only have a text come after those of the data
            if Y.shape[1] != self.n_labels:
                raise DataError(f"this model has {self.n_labels} labels; the data has {Y.shape[1]}")
            return Y, known or label_names
        ids = {name: i for i, name in enumerate(known)}
        occurring = np.unique(Y.indices)
        new_ids = np.zeros(Y.shape[1], np.int64)
        for label in occurring.tolist():
            new_ids[label] = ids.setdefault(label_names[label], len(ids))
        if len(occurring) and new_ids[occurring].min() >= self.n_labels:
            name = label_names[occurring[0]][:40]
            raise DataError(f"this model knows none of the {len(occurring)} labels of the data; one is {name!r}")
        return _relabel(Y, new_ids, len(ids)), list(ids)

    def inputs_of(self, split: Split) -> Inputs:
        """The inputs that this model reads: the texts of a split if it reads texts, or else its features."""
        if not self.reads_texts:
            return split.X
        if split.texts is None:
            raise DataError("this model was trained on texts; the data has only features")
        return split.texts

    def sizes(self) -> dict[str, Any]:
        """Parameters of the output layer and of the whole model, compared with those of a linear output layer.

        The output layers have (in + 1) parameters for each of their d outputs; a linear layer has L outputs.
        """
        layers: list[nn.Module] = [self.head] if self.head.weight is not None else self.network.output_layers
        output = sum(_n_parameters(layer) for layer in layers)
        whole = self.network.n_parameters() + sum(p.numel() for p in self.head.parameters())
        width = self.head.output_dim if self.head.weight is None else len(self.head.weight)
        linear = output * self.n_labels // width
        return {
            "parameters": whole,
            "output layer": output,
            "linear output layer": linear,
            "output layer smaller by": 1 - output / linear,
            "network smaller by": 1 - whole / (whole - output + linear),
        }

    def save(self, path: str | Path, *, dtype: torch.dtype = torch.float32, processes: Processes = ALONE) -> None:
        """Write the model to one file, whole or not at all; `dtype` is the precision of its matrices.

        processes   that call it together, with the same model: they share its compression, and the first one writes
        """
        model_file.write(path, self, dtype, processes)


def load(path: str | Path, *, encoder: str | Path | None = None) -> Model:
    """Read a model that `Model.save` wrote. A FileError says what is wrong with any other file.

    encoder   where the sentence encoder of the model is, if not where it was in training
    """
    model = Model(**model_file.read(path)).eval()
    if encoder is not None:
        of_texts = None if model.label_text is None else model.label_text.encoder
        if model.encoder is None and of_texts is None:
            raise OptionError(f"{path} has no sentence encoder; leave out the encoder")
        for found in (model.encoder, of_texts):
            if found is not None:
                found.use(encoder)
    return model


def _relabel(Y: CsrArray, new_ids: IntArray, n_labels: int) -> CsrArray:
    """Label sets with other ids.  Shapes: sparse (rows, L) -> sparse (rows, n_labels)"""
    relabelled = sparse.csr_array((Y.data.copy(), new_ids[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels))
    relabelled.sort_indices()  # in place, also its data
    return relabelled


def _n_parameters(layer: nn.Module) -> int:
    if isinstance(layer, Network):
        return layer.n_parameters()
    return sum(p.numel() for name, p in layer.named_parameters() if name in ("weight", "bias"))


def _feature_rows(inputs: Inputs) -> Any:
    if sparse.issparse(inputs):
        return inputs
    try:
        dense = np.atleast_2d(np.asarray(inputs, np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"inputs must be rows of features, sparse or dense, or texts; {error}") from error
    if dense.ndim != 2:
        raise DataError(f"inputs must be rows of features; got an array of shape {dense.shape}")
    return sparse.csr_array(dense)
