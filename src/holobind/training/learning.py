"""From data to a model in one call, solved in closed form or trained.

model = learn(part)                                        the closed form: seconds
model = learn(part, ModelConfig(network="fc", loss="query"))    the paper's
model = learn(part, ModelConfig(network="cnn"))                 from the words of the texts, in their order
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind import algebra, metrics
from holobind._types import RowIndex
from holobind.codebooks import OrbitCodebook
from holobind.data import Split, Tfidf
from holobind.data.batches import Examples, SparseExamples, ragged_labels
from holobind.data.csr import normalise_rows
from holobind.errors import DataError, OptionError
from holobind.heads import Head, HolographicHead, LinearHead, frequency_prior
from holobind.model import Model
from holobind.networks import FC, AttentionLstm, Network, XmlCnn
from holobind.ridge_knn.encoder import lengths
from holobind.ridge_knn.fit import fit_ridge_knn, update_ridge_knn
from holobind.ridge_knn.network import RidgeKnn
from holobind.ridge_knn.ridge import RidgeSolution, default_dim, solve_ridge
from holobind.training.config import ModelConfig, TrainConfig, TrainState

if TYPE_CHECKING:
    from holobind.data.tokenizer import Tokenizer

HIDDEN = {"fc": (512, 512), "cnn": (512,), "lstm": (256,)}
MOST = 1 << 32  # bytes of weights beyond which a linear output layer is refused


@dataclass(frozen=True)
class Callbacks:
    """Where a run reports to, and where it can be continued from; see `train.fit`."""

    solving: Callable[[str, float], None] | None = None
    training: Callable[[TrainState, TrainConfig], None] | None = None
    checkpoint: Path | None = None
    resume: bool = False
    log: Path | None = None


def learn(
    part: Split,
    config: ModelConfig | None = None,
    *,
    label_names: Sequence[str] | None = None,
    tfidf: Tfidf | None = None,
    metadata: dict[str, Any] | None = None,
    watch: Callbacks | None = None,
) -> Model:
    """Train a model on a part of a dataset.

    tfidf   how its features were made of its texts, where they were: the model then reads texts, too
    """
    began = time.perf_counter()
    config, watch = config or ModelConfig(), watch or Callbacks()
    X, Y, tokenizer = part.X, part.Y, None
    if config.reads_words:
        tfidf, tokenizer = None, _tokenizer(config, part)
    elif config.text and part.texts is None:
        raise DataError("the data has no texts to make features of; leave out --text")
    elif config.text or (config.text is None and config.uses_knn and (tfidf is None or tfidf.plain)):
        made = Tfidf.fit(part.texts or [])
        if config.text or made[0].words:
            tfidf, X = made
    plan = None if config.solved else _plan(config, Y.shape[0])
    n_features = X.shape[1] if tokenizer is None else tokenizer.vocab_size
    if 0 in (*Y.shape, n_features):
        raise DataError(
            f"there is nothing to learn from {Y.shape[0]} points, {n_features} features, {Y.shape[1]} labels"
        )
    told: dict[str, Any] = {}
    if config.uses_knn:
        network, told = _recalling(X, Y, config, watch)
        model = _with_head(network, None, Y, config, label_names, tfidf)
    else:
        model = _model(config, n_features, Y, label_names, tfidf, tokenizer)
    warm = config.linear_skip or config.network == "linear"
    if plan is None and not config.uses_knn:
        told["ridge"] = _solve(model, X, Y, config, watch, model.frequencies.counts)
    elif plan is not None:
        from holobind.training import loop as train  # Fabric takes longer to import than a small closed form to solve

        examples: Examples = model.examples(X) if tokenizer is None else _encoded(tokenizer, part, config)
        if warm:  # a start that knows the rows held out would make every later epoch look worse
            kept, held = train.split(Y.shape[0], plan.validation, plan.seed)
            told["ridge"] = _solve(model, X[kept], Y[kept], config, watch)
            _temper(model, examples, Y, held if len(held) else kept)
        at = train.fit(
            model,
            examples,
            Y,
            plan,
            checkpoint=watch.checkpoint,
            resume=watch.resume,
            log=watch.log,
            on_progress=watch.training,
            warm=warm,
        )
        told["training"] = {
            "plan": asdict(plan),
            "history": at.history,
            "best": at.best,
            "best epoch": at.best_epoch + 1,  # 0: the start
        }
    chosen = {name: value for name, value in asdict(config).items() if value is not None}
    chosen |= {"word_vectors": str(config.word_vectors)} if config.word_vectors else {}
    model.metadata = {
        **(metadata or {}),
        "config": chosen,
        "points": Y.shape[0],
        "seconds": round(time.perf_counter() - began, 2),
        "threads": torch.get_num_threads(),
        **told,
    }
    return model.eval()


def more(model: Model, part: Split, config: ModelConfig, turn: int = 1) -> None:
    """Teach a model more data, in place: a closed form by another, anything else by one pass at a steady rate.

    The closed form of a portion, with the l2 of the first, is averaged with what there is, by numbers of points: then
    the order of portions does not matter, but for how frequent labels are so far (`ModelConfig.rare_label_boost`). (Gradients of the
    softmax made solved models worse: experiments/LOG.md.)
    turn   the how-manieth time this is: another order of rows in a pass
    """
    if part.Y.shape[1] != model.n_labels:
        raise DataError(f"this model has {model.n_labels} labels; the data has {part.Y.shape[1]}")
    if not len(part):
        return
    examples = model.examples(model.inputs_of(part))
    now = metrics.frequencies(part.Y)
    after = metrics.Frequencies(model.frequencies.counts + now.counts, model.frequencies.points + now.points)
    ridge = model.metadata.get("ridge")
    l2 = ridge.get("l2") if isinstance(ridge, dict) else None
    if isinstance(model.network, RidgeKnn) and isinstance(examples, SparseExamples):
        rows = normalise_rows(examples.X)
        model.network = update_ridge_knn(model.network, rows, part.Y, config.l2 or l2, model.frequencies.points)
    elif config.solved and "training" not in model.metadata and isinstance(examples, SparseExamples):
        before = [parameter.detach().clone() for parameter in _linear_path(model)]
        _solve(model, examples.X, part.Y, replace(config, l2=config.l2 or l2), Callbacks(), after.counts)
        with torch.no_grad():
            for parameter, old in zip(_linear_path(model), before, strict=True):
                parameter.lerp_(old, model.frequencies.points / after.points)
    else:
        from holobind.training import loop as train

        if isinstance(model.head, HolographicHead) and model.head.prior is not None:
            model.head.prior.copy_(_prior(after, model.label_order))
        once = replace(config, epochs=1, validation=0.0, patience=0, seed=config.seed + turn)
        train.fit(model, examples, part.Y, _Steady(**asdict(_plan(once, len(part)))))
    model.frequencies = after


class _Steady(TrainConfig):
    """A pass over one of many portions has no end for the rate to fall towards."""

    def pace(self, done: float) -> float:
        return 1.0


def _tokenizer(config: ModelConfig, part: Split) -> "Tokenizer":
    from holobind.data.tokenizer import Tokenizer

    if part.texts is None:
        raise DataError(
            f"network {config.network!r} reads texts, and the data has none; give texts (the estimator: text=True), "
            "or take network 'fc'"
        )
    return Tokenizer.train(part.texts, config.tokenizer, config.vocab_size)


def _encoded(tokenizer: "Tokenizer", part: Split, config: ModelConfig) -> Examples:
    return tokenizer.encode(part.texts or [], config.max_tokens, cache=True)


def _model(
    config: ModelConfig,
    n_features: int,
    Y: Any,
    label_names: Sequence[str] | None,
    tfidf: Tfidf | None,
    tokenizer: "Tokenizer | None",
) -> Model:
    L = int(Y.shape[1])
    dim = L if config.head == "linear" else config.dim or default_dim(L)
    direct = config.network == "linear" or config.linear_skip  # the network gives the output; the head has no layer
    hidden = () if config.network == "linear" else HIDDEN[config.network] if config.hidden is None else config.hidden
    if config.head == "linear":
        width = n_features if direct else hidden[-1]
        if 4 * L * width > MOST:
            raise OptionError(
                f"a linear head of {width} x {L} weights would take {4 * L * width / 2**30:.0f} GB; "
                "take head 'holographic'"
            )
    network: Network
    if tokenizer is not None:
        network = _text_network(config, tokenizer, hidden)
    else:
        network = FC(
            n_features,
            hidden,
            dim if direct else None,
            linear_skip=config.linear_skip,
            dropout=config.dropout or 0.0,
            feature_dropout=config.feature_dropout or 0.0,
            seed=config.seed,
        )
    return _with_head(network, None if direct else dim, Y, config, label_names, tfidf, tokenizer)


def _with_head(
    network: Network,
    width: int | None,
    Y: Any,
    config: ModelConfig,
    label_names: Sequence[str] | None,
    tfidf: Tfidf | None,
    tokenizer: "Tokenizer | None" = None,
) -> Model:
    """A model of a network and the head that the config asks for.

    width   of the head's layer, or None where the network gives the output itself
    """
    L = int(Y.shape[1])
    inside = None if width is None else network.out_features
    head: Head
    if config.head == "linear":
        head = LinearHead(inside, L, "softmax" if config.loss == "softmax" else "bce", config.seed)
    else:
        loss = "softmax" if config.loss in (None, "ridge") else config.loss
        dim = network.out_features if width is None else width
        book = "one_hot" if isinstance(network, RidgeKnn) and network.plain else config.codebook
        head = HolographicHead(inside, L, dim, book, loss, config.seed, config.trainable)  # type: ignore[arg-type]
    seen = metrics.frequencies(Y)
    order = _order(head, seen) if not config.solved else None
    if isinstance(head, HolographicHead) and head.loss_name == "softmax" and inside is not None:
        head.prior = _prior(seen, order)
    return Model(
        network,
        head,
        seen,
        normalise=config.normalise,
        tfidf=tfidf,
        tokenizer=tokenizer,
        max_tokens=config.max_tokens,
        label_names=label_names,
        label_order=order,
    )


def _prior(seen: metrics.Frequencies, label_order: NDArray[np.int64] | None) -> Tensor:
    return frequency_prior(torch.from_numpy(seen.counts if label_order is None else seen.counts[label_order]))


def _order(head: Head, seen: metrics.Frequencies) -> NDArray[np.int64] | None:
    """The most frequent labels first, where an orbit has several bases: rolls of one base do not disturb each other.

    Worth a point of P@1 to the query loss on delicious (experiments/LOG.md); the closed form does not gain by it.
    """
    if not isinstance(head, HolographicHead) or not isinstance(head.codebook, OrbitCodebook):
        return None
    if head.n_labels <= head.codebook.dim:
        return None
    return np.argsort(-seen.counts, kind="stable").astype(np.int64)


def _text_network(config: ModelConfig, tokenizer: "Tokenizer", hidden: Sequence[int]) -> Network:
    options: dict[str, Any] = {"seed": config.seed, "embedding_dim": config.embedding_dim}
    if config.word_vectors is not None:
        from holobind.data.tokenizer import load_word_vectors

        options["vectors"] = load_word_vectors(config.word_vectors, tokenizer, config.embedding_dim, config.seed)
        options["embedding_dim"] = options["vectors"].shape[1]
    options |= {"dropout": config.dropout, "embedding_dropout": config.feature_dropout}
    options = {name: value for name, value in options.items() if value is not None}
    if config.network == "cnn":
        return XmlCnn(tokenizer.vocab_size, filters=config.filters, bottleneck=hidden[0], **options)
    return AttentionLstm(tokenizer.vocab_size, hidden_size=config.hidden_size, layers=hidden, **options)


def _solve(
    model: Model, X: Any, Y: Any, config: ModelConfig, watch: Callbacks, counts: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Set the linear path of a model to the closed form, and tell how that went.

    counts   of labels, by which rare ones weigh more; None where training goes on from here
    """
    rows = normalise_rows(X) if config.normalise else X
    head = model.head
    # A linear head's scores are the output itself: an orthonormal codebook of L numbers, and its scores at the end.
    book = OrbitCodebook(head.n_labels, head.n_labels) if isinstance(head, LinearHead) else head.codebook
    longer = None if counts is None or isinstance(head, LinearHead) else lengths(counts, config.rare_label_boost)
    found = solve_ridge(
        rows,
        model.arranged(Y),
        book,
        config.l2,
        label_weights=longer,
        seed=config.seed,
        on_progress=watch.solving,
    )
    W, bias = found.weights, found.bias
    if isinstance(head, HolographicHead) and head.loss_name != "softmax":  # these heads unbind p before they read
        with torch.no_grad():
            p = head._keys()[0]
            W, bias = algebra.bind(W, p), algebra.bind(bias, p)
    if isinstance(head, LinearHead):
        W, bias = book.scores(W), book.scores(bias)
        if head.loss_name == "bce":  # logits: sigmoid(4 y - 2) is near y around 1/2, where it decides
            W, bias = 4 * W, 4 * bias - 2
    path, offset = _linear_path(model)
    with torch.no_grad():
        path.copy_(W)
        offset.copy_(bias)
    return _told(found)


def _recalling(X: Any, Y: Any, config: ModelConfig, watch: Callbacks) -> tuple[RidgeKnn, dict[str, Any]]:
    """The encoder that recalls its errors, and how that went."""
    found = fit_ridge_knn(
        normalise_rows(X),
        Y,
        dim=config.dim,
        l2=config.l2,
        knn_weight=config.knn_weight,
        rare_label_boost=config.rare_label_boost,
        seed=config.seed,
        on_progress=watch.solving,
    )
    network = found.network
    said = {
        "knn_weight": network.knn_weight,
        "similarity_power": network.similarity_power,
        "idf_power": network.idf_power,
        "forest_weight": network.share,
        "rows": len(network.row_offsets) - 1,
        "validation": [[*at, round(score, 3)] for *at, score in found.validation],
    }
    return network, {"ridge": _told(found.solution), "knn": said}


def _told(found: RidgeSolution) -> dict[str, Any]:
    return {
        "l2": found.l2,
        "system": found.system,
        "iterations": found.iterations,
        "residual": found.residual,
        "converged": found.converged,
        "seconds": round(found.seconds, 2),
        "validation": [[round(l2, 6), round(score, 3)] for l2, score in found.validation],
    }


def _linear_path(model: Model) -> tuple[Tensor, Tensor]:
    """The matrix and the offset that make x W + b of a linear network, or of the path beside a deep one."""
    network = model.network
    assert isinstance(network, FC)
    if network.linear_skip is None:
        return network.first.weight, network.offset
    return network.linear_skip.weight, network.layers[-1].bias  # type: ignore[return-value]


def _temper(model: Model, examples: Examples, Y: Any, rows: RowIndex) -> None:
    """Make the softmax over a solved model's scores as sharp as fits rows that it has not seen best.

    Scores of the closed form run from 0 to 1, give or take: over thousands of labels their softmax is all but flat, and
    training would blow up the weights first and forget what was solved.
    """
    head = model.head
    if head.loss_name != "softmax":
        return
    rows = rows[: int(np.clip(2**23 // model.n_labels, 16, 500))]
    with torch.no_grad():
        if isinstance(head, HolographicHead) and head.log_temperature is not None:
            head.log_temperature.zero_()
        h = model.network(examples.batch(rows))
        labels, offsets = ragged_labels(Y, rows)
        places = model.places(labels)
        sharpest = min(np.exp(np.linspace(-3, 6, 37)), key=lambda t: float(head.loss(t * h, places, offsets)))
        if isinstance(head, HolographicHead) and head.log_temperature is not None:
            head.log_temperature.fill_(math.log(sharpest))
            return
        for parameter in _linear_path(model):
            parameter.mul_(sharpest)


def _plan(config: ModelConfig, points: int) -> TrainConfig:
    """Few points want many epochs and small batches."""
    points = max(points, 1)
    batch = config.batch_size or int(np.clip(2 ** round(np.log2(points / 60)), 32, 512))
    epochs = config.epochs or int(np.clip(300_000 // points, 5, 30))
    from_scratch = config.network == "fc" and not config.linear_skip
    rate, feature_learning_rate = (1e-3, 1e-2) if from_scratch else (3e-3, None)
    if config.learning_rate is not None:
        rate, feature_learning_rate = config.learning_rate, None
    return TrainConfig(
        epochs=epochs,
        batch_size=batch,
        learning_rate=rate,
        feature_learning_rate=config.feature_learning_rate or feature_learning_rate,
        weight_decay=config.weight_decay,
        patience=config.patience,
        validation=config.validation,
        precision=config.precision,
        time_limit=config.time_limit,
        seed=config.seed,
    )
