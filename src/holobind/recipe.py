"""From data to a model in one call: which network, head and dimension, solved in closed form or trained.

model = learn(part, Recipe())                              the closed form: seconds
model = learn(part, Recipe(network="fc", loss="query"))    the paper's
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.preprocessing import normalize

from holobind import metrics, solve, train
from holobind.codebook import OrbitCodebook
from holobind.data import Part, Tfidf
from holobind.errors import DataError, OptionError
from holobind.head import HolographicHead, LinearHead
from holobind.model import Head, Model
from holobind.networks import FC, Network

NetworkName = Literal["linear", "fc"]
HeadName = Literal["holographic", "linear"]
LossName = Literal["ridge", "softmax", "query", "query-abs", "regression", "bce"]
CodebookName = Literal["orbit", "random", "naive"]

MOST = 1 << 32  # bytes of weights beyond which a linear output layer is refused


@dataclass(frozen=True)
class Recipe:
    """What to train; None stands for a choice by the data.

    network    "linear": features to output by one matrix. "fc": the paper's two hidden layers of 512
    head       "holographic", or "linear" with one output a label
    loss       "ridge" solves a linear network in closed form (its default). Holographic heads: "softmax" (the default
               of fc), "query" (the paper's), "query-abs", "regression". Linear heads: "bce" (default), "softmax"
    dim        numbers in the holographic output; up to 1024, but no more than the labels need
    codebook   "orbit", "random" (the paper's), "naive" (its failed ablation); see `HolographicHead`
    wide       a linear path beside the hidden layers of fc, which starts from the closed form
    hidden     sizes of the hidden layers of fc
    lam        the penalty of the closed form; None: chosen on held-out rows
    normalise  scale rows of features to length 1
    text       make features of the texts, even if the data brings some
    epochs, batch_size, learning_rate, ...   as in `train.Plan`
    """

    network: NetworkName = "linear"
    head: HeadName = "holographic"
    loss: LossName | None = None
    dim: int | None = None
    codebook: CodebookName = "orbit"
    learn: Sequence[Literal["present", "missing", "labels"]] = ()
    wide: bool = False
    hidden: Sequence[int] = (512, 512)
    dropout: float = 0.0
    feature_dropout: float = 0.0
    lam: float | None = None
    normalise: bool = True
    text: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float = 0.0
    patience: int = 3
    validation: float = 0.1
    precision: str = "32-true"
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("network", get_args(NetworkName)),
            ("head", get_args(HeadName)),
            ("loss", (None, *get_args(LossName))),
            ("codebook", get_args(CodebookName)),
        ):
            if getattr(self, name) not in allowed:
                said = ", ".join(str(value) for value in allowed if value is not None)
                raise OptionError(f"{name} must be one of {said}; got {getattr(self, name)!r}")
        if self.dim is not None and self.dim < 1:
            raise OptionError(f"dim must be 1 or more; got {self.dim}")
        fits = (
            ("ridge", "bce", "softmax")
            if self.head == "linear"
            else ("ridge", "softmax", "query", "query-abs", "regression")
        )
        if self.loss not in (None, *fits):
            raise OptionError(f"a {self.head} head has the losses {', '.join(fits)}; got {self.loss!r}")
        if self.loss == "ridge" and self.network != "linear":
            raise OptionError(f"the ridge loss is solved for network 'linear'; got network {self.network!r}")

    @property
    def solved(self) -> bool:
        """Whether the closed form is all there is to it."""
        return self.network == "linear" and self.loss in (None, "ridge")


@dataclass(frozen=True)
class Watch:
    """Where a run reports to, and where it can be continued from; see `train.fit`."""

    solving: Callable[[str, float], None] | None = None
    training: Callable[[train.Progress, train.Plan], None] | None = None
    checkpoint: Path | None = None
    resume: bool = False
    log: Path | None = None


def learn(
    part: Part,
    recipe: Recipe | None = None,
    *,
    label_names: Sequence[str] | None = None,
    tfidf: Tfidf | None = None,
    about: dict[str, Any] | None = None,
    watch: Watch | None = None,
) -> Model:
    """Train a model on a part of a dataset.

    tfidf   how its features were made of its texts, where they were: the model then reads texts, too
    """
    began = time.perf_counter()
    recipe, watch = recipe or Recipe(), watch or Watch()
    X, Y = part.X, part.Y
    if recipe.text:
        if part.texts is None:
            raise DataError("the data has no texts to make features of; leave out --text")
        tfidf, X = Tfidf.fit(part.texts)
    if 0 in (*X.shape, Y.shape[1]):
        raise DataError(
            f"there is nothing to learn from {X.shape[0]} points, {X.shape[1]} features, {Y.shape[1]} labels"
        )
    model = _model(recipe, X.shape[1], Y, label_names, tfidf)
    told: dict[str, Any] = {}
    if recipe.solved or recipe.wide or recipe.network == "linear":
        told["ridge"] = _solve(model, X, Y, recipe, watch)
    if not recipe.solved:
        plan = _plan(recipe, Y.shape[0])
        at = train.fit(
            model,
            model.examples(X),
            Y,
            plan,
            checkpoint=watch.checkpoint,
            resume=watch.resume,
            log=watch.log,
            on_progress=watch.training,
        )
        told["training"] = {"plan": asdict(plan), "history": at.history, "best epoch": at.best_epoch + 1}
    chosen = {name: value for name, value in asdict(recipe).items() if value is not None}
    model.about = {
        **(about or {}),
        "recipe": chosen,
        "points": Y.shape[0],
        "seconds": round(time.perf_counter() - began, 2),
        "threads": torch.get_num_threads(),
        **told,
    }
    return model.eval()


def _model(recipe: Recipe, n_features: int, Y: Any, label_names: Sequence[str] | None, tfidf: Tfidf | None) -> Model:
    L = int(Y.shape[1])
    dim = L if recipe.head == "linear" else recipe.dim or solve.dimension(L)
    direct = recipe.network == "linear" or recipe.wide  # the network gives the output; the head has no layer
    if recipe.head == "linear":
        width = n_features if direct else recipe.hidden[-1]
        if 4 * L * width > MOST:
            raise OptionError(
                f"a linear head of {width} x {L} weights would take {4 * L * width / 2**30:.0f} GB; "
                "take head 'holographic'"
            )
    network: Network = FC(
        n_features,
        () if recipe.network == "linear" else recipe.hidden,
        dim if direct else None,
        wide=recipe.wide,
        dropout=recipe.dropout,
        feature_dropout=recipe.feature_dropout,
        seed=recipe.seed,
    )
    inside = None if direct else network.out_features
    head: Head
    if recipe.head == "linear":
        head = LinearHead(inside, L, "softmax" if recipe.loss == "softmax" else "bce", recipe.seed)
    else:
        loss = "softmax" if recipe.loss in (None, "ridge") else recipe.loss
        head = HolographicHead(inside, L, dim, recipe.codebook, loss, recipe.seed, recipe.learn)  # type: ignore[arg-type]
    seen = metrics.frequencies(Y)
    return Model(network, head, seen, normalise=recipe.normalise, tfidf=tfidf, label_names=label_names)


def _solve(model: Model, X: Any, Y: Any, recipe: Recipe, watch: Watch) -> dict[str, Any]:
    """Set the linear path of a model to the closed form, and tell how that went."""
    rows = normalize(X) if recipe.normalise else X
    head = model.head
    # A linear head's scores are the output itself: an orthonormal codebook of L numbers, and its scores at the end.
    book = OrbitCodebook(head.n_labels, head.n_labels) if isinstance(head, LinearHead) else head.codebook
    if isinstance(head, HolographicHead) and head._asked is not None:
        book = head._asked  # the query loss reads labels bound with p
    found = solve.ridge(rows, Y, book, recipe.lam, seed=recipe.seed, on_progress=watch.solving)
    W, bias = found.weights, found.bias
    if isinstance(head, LinearHead):
        W, bias = book.scores(W), book.scores(bias)
    network = model.network
    assert isinstance(network, FC)
    path = network.wide or network.first
    offset = network.layers[-1].bias if network.wide else network.offset
    with torch.no_grad():
        path.weight.copy_(W)
        offset.copy_(bias)  # type: ignore[operator]
    return {
        "lam": found.lam,
        "system": found.system,
        "iterations": found.iterations,
        "residual": found.residual,
        "converged": found.converged,
        "seconds": round(found.seconds, 2),
        "validation": [[round(lam, 6), round(score, 3)] for lam, score in found.validation],
    }


def _plan(recipe: Recipe, points: int) -> train.Plan:
    """Few points want many epochs and small batches."""
    batch = recipe.batch_size or int(np.clip(2 ** round(np.log2(max(points, 1) / 60)), 32, 512))
    epochs = recipe.epochs or int(np.clip(300_000 // points, 5, 30))
    return train.Plan(
        epochs=epochs,
        batch_size=batch,
        learning_rate=recipe.learning_rate or 3e-3,
        weight_decay=recipe.weight_decay,
        patience=recipe.patience,
        validation=recipe.validation,
        precision=recipe.precision,
        time_limit=recipe.time_limit,
        seed=recipe.seed,
    )
