"""The inputs that a config selects, and the untrained model of a config: network, head and label order."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from holobind import metrics
from holobind._checks import fits_memory
from holobind._processes import ALONE, Processes, joined
from holobind._types import CsrArray, IntArray, ProgressCallback
from holobind.data import Split, Tfidf
from holobind.errors import DataError, OptionError
from holobind.heads import Head, HolographicHead, LinearHead
from holobind.model import Model
from holobind.networks import FC, AttentionLstm, Network, WideAndDeep, XmlCnn
from holobind.ridge_knn import default_dim
from holobind.training.config import ModelConfig, TrainConfig
from holobind.training.optimiser import DENSE_COPIES, SPARSE_COPIES, sparse_weights
from holobind.training.text_features import make_features

if TYPE_CHECKING:
    from holobind.data.encoder_features import EncoderFeatures
    from holobind.data.tokenizer import Tokenizer
    from holobind.data.vectorizers import SklearnFeatures

HIDDEN_SIZES = {"linear": (), "fc": (512,), "cnn": (512,), "lstm": (256,)}
MAX_LINEAR_HEAD_BYTES = 1 << 32
BYTES_PER_WEIGHT = 4
SMALLER_SIZES = "take a smaller dim, hidden, embedding_dim, filters or hidden_size"


@dataclass(frozen=True)
class Inputs:
    """Training data as a network takes it: rows of features, the tokens of texts, or both."""

    split: Split
    X: CsrArray
    tfidf: "Tfidf | SklearnFeatures | None"
    tokenizer: "Tokenizer | None"
    encoder: "EncoderFeatures | None" = None
    summary: dict[str, Any] = field(default_factory=dict)
    max_uncompressed: int | None = None  # bytes of the file of word vectors
    groups: IntArray | None = None  # of rows, for the hold-out

    @property
    def Y(self) -> CsrArray:  # noqa: N802
        return self.split.Y

    @property
    def n_features(self) -> int:
        reads_features = self.tokenizer is None or self.tfidf is not None
        return int(self.X.shape[1]) if reads_features or self.tokenizer is None else self.tokenizer.vocab_size


def read_inputs(
    split: Split,
    config: ModelConfig,
    tfidf: "Tfidf | SklearnFeatures | None",
    on_progress: ProgressCallback | None = None,
    max_uncompressed: int | None = None,
) -> Inputs:
    """The inputs that a config selects: the data's features, features of its texts, their tokens, or the last two."""
    if config.reads_tokens:
        tokenizer = _fit_tokenizer(split, config)
        inputs = Inputs(split, split.X, None, tokenizer, max_uncompressed=max_uncompressed)
        if config.has_linear_skip:
            features = make_features(split, replace(config, text=True), tfidf, on_progress)
            inputs = replace(inputs, X=features.X, tfidf=features.tfidf, summary=features.summary)
    else:
        features = make_features(split, config, tfidf, on_progress)
        inputs = Inputs(split, features.X, features.tfidf, None, features.encoder, features.summary)
    if 0 in (*split.Y.shape, inputs.n_features):
        n_rows, n_labels = split.Y.shape
        raise DataError(
            f"there is nothing to learn from {n_rows} rows, {inputs.n_features} features, {n_labels} labels"
        )
    return inputs


def _fit_tokenizer(split: Split, config: ModelConfig) -> "Tokenizer":
    from holobind.data.tokenizer import Tokenizer

    if split.texts is None:
        raise DataError(
            f"network {config.network!r} reads texts, and the data has none; give texts (the estimator: text=True), "
            "or take network 'fc'"
        )
    return Tokenizer.train(split.texts, config.tokenizer, config.vocab_size)


def build(
    inputs: Inputs, config: ModelConfig, label_names: Sequence[str] | None, train_config: TrainConfig | None = None
) -> Model:
    """An untrained model: the network and head of a config; with `train_config`, one that memory suffices to train."""
    n_labels = int(inputs.Y.shape[1])
    dim = n_labels if config.head == "linear" else config.dim or default_dim(n_labels)
    # A linear network, and a linear skip, give the output themselves: the head then has no layer.
    network_gives_output = config.network == "linear" or config.has_linear_skip
    hidden = HIDDEN_SIZES[config.network] if config.hidden is None else config.hidden
    if config.network == "linear":
        hidden = ()
    if config.head == "linear":
        width = inputs.n_features if network_gives_output else hidden[-1]
        if 4 * n_labels * width > MAX_LINEAR_HEAD_BYTES:
            raise OptionError(
                f"a linear head of {width} x {n_labels} weights would take {4 * n_labels * width / 2**30:.0f} GB; "
                "take head 'holographic'"
            )
    shards = joined() if train_config is not None and train_config.shard_features else ALONE
    if shards.size > 1 and torch.cuda.is_available():
        raise OptionError("shard_features exchanges rows by gloo, on CPUs only; leave it out on GPUs")
    out_features = dim if network_gives_output else None
    with torch.device("meta"):  # shapes alone
        planned = _network(inputs, replace(config, word_vectors=None), hidden, out_features, shards)
    n_weights = planned.n_parameters() + (0 if network_gives_output else planned.out_features * dim)
    _check_memory(n_weights, sum(p.numel() for p in sparse_weights(planned)), dim, train_config)
    network = _network(inputs, config, hidden, out_features, shards)
    in_features = None if network_gives_output else network.out_features
    head: Head
    if config.head == "linear":
        head = LinearHead(in_features, n_labels, "softmax" if config.loss == "softmax" else "bce", config.seed)
    else:
        loss: Any = config.head_loss
        head = HolographicHead(
            in_features,
            n_labels,
            dim,
            config.codebook,
            loss,
            config.seed,
            config.trainable,
            hard_negatives=config.hard_negatives,
        )
    return assemble(network, head, inputs, config, label_names)


def _check_memory(n_weights: int, n_sparse: int, dim: int, train_config: TrainConfig | None) -> None:
    """Refuse weights that, with what training keeps of them, take more memory than there is.

    n_sparse   of the weights have sparse gradients
    """
    what, copies = f"{n_weights:,} weights (dim {dim:,})", n_weights
    if train_config is not None:
        what += " and the optimiser's state"
        copies = DENSE_COPIES * (n_weights - n_sparse) + SPARSE_COPIES * n_sparse
        if train_config.validation_fraction > 0:
            copies += n_weights  # those of the best epoch
    fits_memory(what, BYTES_PER_WEIGHT * copies, SMALLER_SIZES)


def assemble(
    network: Network, head: Head, inputs: Inputs, config: ModelConfig, label_names: Sequence[str] | None
) -> Model:
    frequencies = metrics.frequencies(inputs.Y)
    order = None
    if head.orders_labels and not config.closed_form:
        # The most frequent labels first: rolls of one orbit base are orthogonal. That is worth a point of P@1 to the
        # query loss on delicious (experiments/LOG.md); the closed form does not gain by it.
        order = np.argsort(-frequencies.counts, kind="stable").astype(np.int64)
    if head.weight is not None:
        head.set_prior(head_counts(frequencies, order), frequencies.n_rows)
    return Model(
        network,
        head,
        frequencies,
        normalise=config.normalise,
        tfidf=inputs.tfidf,
        encoder=inputs.encoder,
        tokenizer=inputs.tokenizer,
        max_tokens=config.max_tokens,
        label_names=label_names,
        label_order=order,
    )


def _network(
    inputs: Inputs, config: ModelConfig, hidden: Sequence[int], out_features: int | None, shards: Processes
) -> Network:
    """The untrained network of a config; `out_features` if it gives the output itself.

    shards   processes that divide the features of the first layer
    """
    if inputs.tokenizer is not None:
        network = _text_network(config, inputs.tokenizer, hidden, inputs.max_uncompressed)
        return network if out_features is None else WideAndDeep(inputs.n_features, out_features, network)
    return FC(
        inputs.n_features,
        hidden,
        out_features,
        linear_skip=config.has_linear_skip,
        dropout=config.dropout or 0.0,
        feature_dropout=config.feature_dropout or 0.0,
        seed=config.seed,
        shards=shards if hidden else ALONE,
    )


def _text_network(
    config: ModelConfig, tokenizer: "Tokenizer", hidden: Sequence[int], max_uncompressed: int | None
) -> Network:
    options: dict[str, Any] = {"seed": config.seed, "embedding_dim": config.embedding_dim}
    if config.word_vectors is not None:
        from holobind.data.tokenizer import load_word_vectors

        options["vectors"] = load_word_vectors(
            config.word_vectors, tokenizer, config.embedding_dim, config.seed, max_uncompressed
        )
        options["embedding_dim"] = options["vectors"].shape[1]
    options |= {"dropout": config.dropout, "embedding_dropout": config.feature_dropout}
    options = {name: value for name, value in options.items() if value is not None}
    if config.network == "cnn":
        return XmlCnn(tokenizer.vocab_size, filters=config.filters, bottleneck=hidden[0], **options)
    return AttentionLstm(tokenizer.vocab_size, hidden_size=config.hidden_size, layers=hidden, **options)


def head_counts(frequencies: metrics.Frequencies, label_order: IntArray | None) -> Tensor:
    """How often each label occurs, in the head's order of labels.  Shapes: -> (L)"""
    return torch.from_numpy(frequencies.counts if label_order is None else frequencies.counts[label_order])
