"""From data to a model in one call: which network, head and dimension, solved in closed form or trained.

model = learn(part, Recipe())                              the closed form: seconds
model = learn(part, Recipe(network="fc", loss="query"))    the paper's
model = learn(part, Recipe(network="cnn"))                 from the words of the texts, in their order
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from holobind import algebra, metrics, solve
from holobind.codebook import OrbitCodebook
from holobind.data import Part, Tfidf
from holobind.errors import DataError, OptionError
from holobind.head import HolographicHead, LinearHead
from holobind.model import Head, Model
from holobind.networks import FC, AttentionLstm, Network, XmlCnn
from holobind.networks.inputs import Examples, Index, SparseExamples, label_sets
from holobind.plan import Plan, Progress

if TYPE_CHECKING:
    from holobind.text import Tokenizer

NetworkName = Literal["linear", "fc", "cnn", "lstm"]
HeadName = Literal["holographic", "linear"]
LossName = Literal["ridge", "softmax", "query", "query-abs", "regression", "bce"]
CodebookName = Literal["orbit", "random", "naive"]
TokenizerName = Literal["word", "bpe"]

HIDDEN = {"fc": (512, 512), "cnn": (512,), "lstm": (256,)}
MOST = 1 << 32  # bytes of weights beyond which a linear output layer is refused


@dataclass(frozen=True)
class Recipe:
    """What to train; None stands for a choice by the data or by the network.

    network    "linear": features to output by one matrix. "fc": the paper's two hidden layers of 512. From texts,
               word by word: "cnn", XML-CNN, and "lstm", a bidirectional LSTM with attention
    head       "holographic", or "linear" with one output a label
    loss       "ridge" solves a linear network in closed form (its default). Holographic heads: "softmax" (the default
               of others), "query" (the paper's), "query-abs", "regression". Linear heads: "bce" (default), "softmax"
    dim        numbers in the holographic output; up to 1024, but no more than the labels need
    codebook   "orbit", "random" (the paper's), "naive" (its failed ablation); see `HolographicHead`
    wide       a linear path beside the hidden layers of fc, which starts from the closed form
    hidden     sizes of the hidden layers: 512, 512 of fc, 512 of cnn, which has one, 256 of lstm
    dropout    share of hidden units left out in training: 0 of fc, else 0.5
    feature_dropout   share of the features left out: 0; of the numbers in words' vectors: 0.25 of cnn, 0.2 of lstm
    lam        the penalty of the closed form; None: chosen on held-out rows
    normalise  scale rows of features to length 1
    text       make features of the texts, even if the data brings some; cnn and lstm read texts in any case

    Of cnn and lstm:

    tokenizer      "word", or "bpe": the frequent parts of words
    vocabulary     how many different tokens, at most
    longest        how many tokens of a text are read
    word_vectors   a file of word vectors to start from, in the text format of GloVe, word2vec and fastText
    embedding      numbers in the vector of a word; 300, or what the file has
    filters        of cnn, for each of its widths, 2, 4 and 8
    states         of lstm, in each direction

    epochs, batch_size, learning_rate, ...   as in `plan.Plan`
    """

    network: NetworkName = "linear"
    head: HeadName = "holographic"
    loss: LossName | None = None
    dim: int | None = None
    codebook: CodebookName = "orbit"
    learn: Sequence[Literal["present", "missing", "labels"]] = ()
    wide: bool = False
    hidden: Sequence[int] | None = None
    dropout: float | None = None
    feature_dropout: float | None = None
    lam: float | None = None
    normalise: bool = True
    text: bool = False
    tokenizer: TokenizerName = "word"
    vocabulary: int = 50_000
    longest: int = 500
    word_vectors: str | Path | None = None
    embedding: int | None = None
    filters: int = 128
    states: int = 256
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
            ("tokenizer", get_args(TokenizerName)),
        ):
            if getattr(self, name) not in allowed:
                said = ", ".join(str(value) for value in allowed if value is not None)
                raise OptionError(f"{name} must be one of {said}; got {getattr(self, name)!r}")
        for name in ("dim", "epochs", "batch_size", "embedding"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise OptionError(f"{name} must be a whole number from 1, or None to have it chosen; got {value!r}")
        for name, least in (("vocabulary", 3), ("longest", 1), ("filters", 1), ("states", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise OptionError(f"{name} must be a whole number from {least}; got {value!r}")
        for name in ("lam", "learning_rate", "time_limit"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise OptionError(f"{name} must be a positive number, or None; got {value!r}")
        for name in ("dropout", "feature_dropout"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < 1):
                raise OptionError(f"{name} is a share from 0 to below 1; got {value!r}")
        fits = (
            ("ridge", "bce", "softmax")
            if self.head == "linear"
            else ("ridge", "softmax", "query", "query-abs", "regression")
        )
        if self.loss not in (None, *fits):
            raise OptionError(f"a {self.head} head has the losses {', '.join(fits)}; got {self.loss!r}")
        if self.loss == "ridge" and self.network != "linear":
            raise OptionError(f"the ridge loss is solved for network 'linear'; got network {self.network!r}")
        if self.wide and self.reads_words:
            raise OptionError(f"wide is of network 'fc'; got network {self.network!r}")
        if self.hidden is not None and not len(self.hidden):
            raise OptionError("hidden must have at least one size, as in (512,)")
        if self.network == "cnn" and self.hidden is not None and len(self.hidden) != 1:
            raise OptionError(f"network 'cnn' has one hidden layer; got {len(self.hidden)} sizes")
        if self.word_vectors is not None and self.tokenizer != "word":
            raise OptionError(f"word_vectors are of words; take tokenizer 'word', not {self.tokenizer!r}")

    @property
    def solved(self) -> bool:
        """Whether the closed form is all there is to it."""
        return self.network == "linear" and self.loss in (None, "ridge")

    @property
    def reads_words(self) -> bool:
        """Whether the network is one for texts, word by word."""
        return self.network in ("cnn", "lstm")


@dataclass(frozen=True)
class Watch:
    """Where a run reports to, and where it can be continued from; see `train.fit`."""

    solving: Callable[[str, float], None] | None = None
    training: Callable[[Progress, Plan], None] | None = None
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
    X, Y, tokenizer = part.X, part.Y, None
    if recipe.reads_words:
        tfidf, tokenizer = None, _tokenizer(recipe, part)
    elif recipe.text:
        if part.texts is None:
            raise DataError("the data has no texts to make features of; leave out --text")
        tfidf, X = Tfidf.fit(part.texts)
    plan = None if recipe.solved else _plan(recipe, Y.shape[0])
    n_features = X.shape[1] if tokenizer is None else tokenizer.n_tokens
    if 0 in (*Y.shape, n_features):
        raise DataError(
            f"there is nothing to learn from {Y.shape[0]} points, {n_features} features, {Y.shape[1]} labels"
        )
    model = _model(recipe, n_features, Y, label_names, tfidf, tokenizer)
    told: dict[str, Any] = {}
    warm = recipe.wide or recipe.network == "linear"
    if plan is None:
        told["ridge"] = _solve(model, X, Y, recipe, watch)
    else:
        from holobind import train  # Fabric takes longer to import than a small closed form to solve

        examples: Examples = model.examples(X) if tokenizer is None else _encoded(tokenizer, part, recipe)
        if warm:  # a start that knows the rows held out would make every later epoch look worse
            kept, held = train.split(Y.shape[0], plan.validation, plan.seed)
            told["ridge"] = _solve(model, X[kept], Y[kept], recipe, watch)
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
    chosen = {name: value for name, value in asdict(recipe).items() if value is not None}
    chosen |= {"word_vectors": str(recipe.word_vectors)} if recipe.word_vectors else {}
    model.about = {
        **(about or {}),
        "recipe": chosen,
        "points": Y.shape[0],
        "seconds": round(time.perf_counter() - began, 2),
        "threads": torch.get_num_threads(),
        **told,
    }
    return model.eval()


def more(model: Model, part: Part, recipe: Recipe, turn: int = 1) -> None:
    """Teach a model more data, in place: a closed form by another, anything else by one pass at a steady rate.

    The closed form of a portion, with the lam of the first, is averaged with what there is, by numbers of points: then
    the order of portions does not matter. (Gradients of the softmax made solved models worse: experiments/LOG.md.)
    turn   the how-manieth time this is: another order of rows in a pass
    """
    if part.Y.shape[1] != model.n_labels:
        raise DataError(f"this model has {model.n_labels} labels; the data has {part.Y.shape[1]}")
    if not len(part):
        return
    examples = model.examples(model.inputs_of(part))
    now = metrics.frequencies(part.Y)
    after = metrics.Frequencies(model.seen.counts + now.counts, model.seen.points + now.points)
    if recipe.solved and "training" not in model.about and isinstance(examples, SparseExamples):
        before = [parameter.detach().clone() for parameter in _linear_path(model)]
        ridge = model.about.get("ridge")
        lam = ridge.get("lam") if isinstance(ridge, dict) else None
        _solve(model, examples.X, part.Y, replace(recipe, lam=recipe.lam or lam), Watch())
        with torch.no_grad():
            for parameter, old in zip(_linear_path(model), before, strict=True):
                parameter.lerp_(old, model.seen.points / after.points)
    else:
        from holobind import train

        once = replace(recipe, epochs=1, validation=0.0, patience=0, seed=recipe.seed + turn)
        train.fit(model, examples, part.Y, _Steady(**asdict(_plan(once, len(part)))))
    model.seen = after


class _Steady(Plan):
    """A pass over one of many portions has no end for the rate to fall towards."""

    def rate(self, done: float) -> float:
        return self.learning_rate


def _tokenizer(recipe: Recipe, part: Part) -> "Tokenizer":
    from holobind.text import Tokenizer

    if part.texts is None:
        raise DataError(
            f"network {recipe.network!r} reads texts, and the data has none; give texts (the estimator: text=True), "
            "or take network 'fc'"
        )
    return Tokenizer.train(part.texts, recipe.tokenizer, recipe.vocabulary)


def _encoded(tokenizer: "Tokenizer", part: Part, recipe: Recipe) -> Examples:
    return tokenizer.encode(part.texts or [], recipe.longest, cache=True)


def _model(
    recipe: Recipe,
    n_features: int,
    Y: Any,
    label_names: Sequence[str] | None,
    tfidf: Tfidf | None,
    tokenizer: "Tokenizer | None",
) -> Model:
    L = int(Y.shape[1])
    dim = L if recipe.head == "linear" else recipe.dim or solve.dimension(L)
    direct = recipe.network == "linear" or recipe.wide  # the network gives the output; the head has no layer
    hidden = () if recipe.network == "linear" else HIDDEN[recipe.network] if recipe.hidden is None else recipe.hidden
    if recipe.head == "linear":
        width = n_features if direct else hidden[-1]
        if 4 * L * width > MOST:
            raise OptionError(
                f"a linear head of {width} x {L} weights would take {4 * L * width / 2**30:.0f} GB; "
                "take head 'holographic'"
            )
    network: Network
    if tokenizer is not None:
        network = _text_network(recipe, tokenizer, hidden)
    else:
        network = FC(
            n_features,
            hidden,
            dim if direct else None,
            wide=recipe.wide,
            dropout=recipe.dropout or 0.0,
            feature_dropout=recipe.feature_dropout or 0.0,
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
    return Model(
        network,
        head,
        seen,
        normalise=recipe.normalise,
        tfidf=tfidf,
        tokenizer=tokenizer,
        longest=recipe.longest,
        label_names=label_names,
    )


def _text_network(recipe: Recipe, tokenizer: "Tokenizer", hidden: Sequence[int]) -> Network:
    options: dict[str, Any] = {"seed": recipe.seed, "embedding": recipe.embedding}
    if recipe.word_vectors is not None:
        from holobind.text import load_word_vectors

        options["vectors"] = load_word_vectors(recipe.word_vectors, tokenizer, recipe.embedding, recipe.seed)
        options["embedding"] = options["vectors"].shape[1]
    options |= {"dropout": recipe.dropout, "embedding_dropout": recipe.feature_dropout}
    options = {name: value for name, value in options.items() if value is not None}
    if recipe.network == "cnn":
        return XmlCnn(tokenizer.n_tokens, filters=recipe.filters, bottleneck=hidden[0], **options)
    return AttentionLstm(tokenizer.n_tokens, states=recipe.states, layers=hidden, **options)


def _solve(model: Model, X: Any, Y: Any, recipe: Recipe, watch: Watch) -> dict[str, Any]:
    """Set the linear path of a model to the closed form, and tell how that went."""
    rows = _unit(X) if recipe.normalise else X
    head = model.head
    # A linear head's scores are the output itself: an orthonormal codebook of L numbers, and its scores at the end.
    book = OrbitCodebook(head.n_labels, head.n_labels) if isinstance(head, LinearHead) else head.codebook
    found = solve.ridge(rows, Y, book, recipe.lam, seed=recipe.seed, on_progress=watch.solving)
    W, bias = found.weights, found.bias
    if isinstance(head, HolographicHead) and head.kind != "softmax":  # these heads unbind p before they read
        with torch.no_grad():
            p = head._keys()[0]
            W, bias = algebra.bind(W, p), algebra.bind(bias, p)
    if isinstance(head, LinearHead):
        W, bias = book.scores(W), book.scores(bias)
        if head.kind == "bce":  # logits: sigmoid(4 y - 2) is near y around 1/2, where it decides
            W, bias = 4 * W, 4 * bias - 2
    path, offset = _linear_path(model)
    with torch.no_grad():
        path.copy_(W)
        offset.copy_(bias)
    return {
        "lam": found.lam,
        "system": found.system,
        "iterations": found.iterations,
        "residual": found.residual,
        "converged": found.converged,
        "seconds": round(found.seconds, 2),
        "validation": [[round(lam, 6), round(score, 3)] for lam, score in found.validation],
    }


def _linear_path(model: Model) -> tuple[Tensor, Tensor]:
    """The matrix and the offset that make x W + b of a linear network, or of the path beside a deep one."""
    network = model.network
    assert isinstance(network, FC)
    if network.wide is None:
        return network.first.weight, network.offset
    return network.wide.weight, network.layers[-1].bias  # type: ignore[return-value]


def _temper(model: Model, examples: Examples, Y: Any, rows: Index) -> None:
    """Make the softmax over a solved model's scores as sharp as fits rows that it has not seen best.

    Scores of the closed form run from 0 to 1, give or take: over thousands of labels their softmax is all but flat, and
    training would blow up the weights first and forget what was solved.
    """
    head = model.head
    if head.kind != "softmax":
        return
    rows = rows[: int(np.clip(2**23 // model.n_labels, 16, 500))]
    with torch.no_grad():
        h = model.network(examples.batch(rows))
        labels, offsets = label_sets(Y, rows)
        sharpest = min(np.exp(np.linspace(0, 6, 25)), key=lambda t: float(head.loss(t * h, labels, offsets)))
        if isinstance(head, HolographicHead) and head.log_temperature is not None:
            head.log_temperature.fill_(math.log(sharpest))
            return
        for parameter in _linear_path(model):
            parameter.mul_(sharpest)


def _unit(X: Any) -> Any:
    """Rows of length 1, but for those of length 0."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(1), np.float64)).ravel()
    return sparse.csr_array(sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ X, dtype=np.float32)


def _plan(recipe: Recipe, points: int) -> Plan:
    """Few points want many epochs and small batches."""
    points = max(points, 1)
    batch = recipe.batch_size or int(np.clip(2 ** round(np.log2(points / 60)), 32, 512))
    epochs = recipe.epochs or int(np.clip(300_000 // points, 5, 30))
    return Plan(
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
