"""Why a label got its score: words or features, training rows, bias and trees, as parts that add up to the score.

The default model is linear plus neighbours, so that its parts are exact (`ridge_knn.explain`). A linear network is
exact, too. For any other trained network a part is gradient x input:

    part of feature f = x_f ds/dx_f,        part of token i = <e_i, ds/de_i>,  with e_i its word vector

which is the first-order effect of the input. The parts then do not add up to the score; `rest` is what is left.
What training rows and label trees add to a trained network is exact (`ridge_knn.extra_parts`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holobind._types import CsrArray, FloatArray
from holobind.data.analyzers import is_unspaced, normal_form, word_spans
from holobind.data.batches import Examples, SparseExamples, TextExamples, TokenExamples
from holobind.networks import FC
from holobind.networks.sparse_linear import SparseLinear
from holobind.ridge_knn import ExtraScores, RidgeKnn
from holobind.ridge_knn.explain import ExtraParts, OutputParts, output_parts

if TYPE_CHECKING:
    from holobind.heads import Head
    from holobind.networks import Network

EXACT = "exact: the parts add up to the score"
GRADIENT = "gradient x input: the parts are first-order effects, and do not add up to the score"
N_SHARED = 5  # features that a neighbour has in common with the row, strongest first


@dataclass(frozen=True)
class Part:
    """A part of a score.

    kind      "feature", "token", "embedding", "training row", "trees", "label trees", "label text", "bias" or "rest"
    name      the word, the feature's id, or the number of the training row
    value     what it adds to the score
    details   of a feature its id and value; of a training row its weight, its labels and features in common; of label
              texts the words in common, and the best labels whose names have words in common with the label's
    """

    kind: str
    name: str
    value: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """The parts of one label's score.

    label         its name, or its id
    score         as the model gives it
    probability   calibrated; None if the model has none
    rank          among all labels, from 1
    method        whether parts are exact
    parts         of largest absolute value first; bias and rest at the end
    rounding      the score minus the sum of the parts: rounding of float32 sums where the method is exact
    text          that was explained, if it was a text
    """

    label: str | int
    score: float
    probability: float | None
    rank: int
    method: str
    parts: list[Part]
    rounding: float
    text: str | None = None

    @classmethod
    def of(
        cls,
        label: int,
        names: "Names",
        scores: FloatArray,
        probabilities: FloatArray | None,
        method: str,
        parts: list[Part],
        text: str | None,
    ) -> "Explanation":
        """The explanation of a label from the scores and probabilities of all labels.  Shapes: (L), (L)"""
        score = float(scores[label])
        return cls(
            label=names.label(label),
            score=score,
            probability=None if probabilities is None else float(probabilities[label]),
            rank=1 + int((scores > scores[label]).sum()),
            method=method,
            parts=parts,
            rounding=score - sum(part.value for part in parts),
            text=text,
        )

    def as_json(self) -> dict[str, Any]:
        """JSON values: numbers are rounded to six digits."""
        parts = [
            {"kind": part.kind, "name": part.name, "value": round(part.value, 6), **part.details} for part in self.parts
        ]
        probability = None if self.probability is None else round(self.probability, 4)
        head = {"label": self.label, "rank": self.rank, "score": round(self.score, 6), "probability": probability}
        return {**head, "method": self.method, "rounding": float(f"{self.rounding:.2g}"), "parts": parts}

    def total(self, kind: str) -> float:
        """The sum of the parts of a kind."""
        return sum(part.value for part in self.parts if part.kind == kind)

    def marked_words(self) -> list[tuple[str, float]]:
        """The text in pieces, with what each adds to the score: 0 between words. Joined, they are the text.

        What a feature adds is divided equally among the words that have it. The words of a model that reads tokens
        alone are its tokens; where it reads features as well, what a token adds goes to the words that are equal to it.
        """
        tokens = [(part.details["position"], part) for part in self.parts if part.kind == "token"]
        if tokens and not any(part.kind == "feature" for part in self.parts):
            pieces = [(part.name, part.value) for _, part in sorted(tokens, key=lambda pair: pair[0])]
            return [each for piece in pieces for each in (piece, (" ", 0.0))]
        text = self.text or ""
        spans = word_spans(text)
        words = [normal_form(text[first:last]) for first, last in spans]
        values = np.zeros(len(words))
        for part in self.parts:
            if part.kind in ("feature", "token"):
                places = _occurrences(part.name, words)
                values[places] += part.value / max(len(places), 1)
        pieces, end = [], 0
        for (first, last), value in zip(spans, values.tolist(), strict=True):
            pieces += [(text[end:first], 0.0), (text[first:last], value)]
            end = last
        return [piece for piece in [*pieces, (text[end:], 0.0)] if piece[0]]


@dataclass(frozen=True)
class Names:
    """The words in which an explanation is given: names of labels and features, and tokens of a tokenizer.

    embedding   the first feature that is a dimension of a sentence embedding; they make one part together
    """

    labels: Sequence[str] | None = None
    features: Sequence[str] | None = None
    tokens: Sequence[str] | None = None
    embedding: int | None = None

    def label(self, i: int) -> str | int:
        return i if self.labels is None else self.labels[i]

    def feature(self, i: int) -> str:
        return f"feature {i}" if self.features is None else self.features[i]

    def has_name(self, i: int) -> bool:
        """Whether a feature means something by itself; a dimension of an embedding does not."""
        return self.embedding is None or i < self.embedding


def explain(
    network: "Network", head: "Head", examples: Examples, labels: Sequence[int], names: Names
) -> tuple[str, list[list[Part]]]:
    """The method, and the parts of the scores of some of the head's labels for the first of some examples."""
    if isinstance(network, RidgeKnn) and isinstance(examples, SparseExamples):
        return EXACT, explain_ridge_knn(network, examples.csr(np.zeros(1, np.intp)), labels, names)
    return explain_network(network, head, examples, labels, names)


def explain_ridge_knn(network: RidgeKnn, x: CsrArray, labels: Sequence[int], names: Names) -> list[list[Part]]:
    """The exact parts of the scores of some labels for one row of norm 1.  Shapes: x sparse (1, f)"""
    parts = output_parts(network, x)
    vectors = network.codebook().vectors(torch.tensor(labels, dtype=torch.long))
    rows = _describe_rows(network.training_rows(), x, parts, names)
    added = network.label_scores(x)
    raised = {} if added is None else dict(zip(added[1][0].tolist(), added[0][0].tolist(), strict=True))
    found = []
    for label, vector in zip(labels, vectors, strict=True):
        scores = parts.scores(vector)
        listed = _list_features(x, scores.features, names)
        listed += _list_rows(rows, label, scores.neighbours)
        if label in raised:
            listed.append(Part("label trees", f"{len(network.label_trees)} label trees", raised[label]))
        if len(scores.trees):
            listed.append(Part("trees", f"{len(scores.trees)} trees", float(scores.trees.sum())))
        found.append([*_largest_first(listed), Part("bias", "bias", scores.bias)])
    return found


def with_extra_scores(
    parts: list[list[Part]], extra: ExtraScores, added: ExtraParts, x: CsrArray, labels: Sequence[int], names: Names
) -> list[list[Part]]:
    """The parts of some labels' scores with what training rows and label trees add.  Shapes: x sparse (1, f)"""
    rows = _describe_rows(extra.training_rows(), x, added, names)
    found = []
    for i, label in enumerate(labels):
        listed = [*parts[i][:-1], *_list_rows(rows, label, added.neighbours[i])]
        if added.trees[i]:
            listed.append(Part("label trees", f"{len(extra.label_trees)} label trees", float(added.trees[i])))
        found.append([*_largest_first(listed), parts[i][-1]])
    return found


def with_label_text(parts: list[Part], value: float, words: list[str], related: list[str | int]) -> list[Part]:
    """The parts of a label's score with what the label's texts add."""
    part = Part("label text", "label text", value, {"words": words, "related labels": related[:N_SHARED]})
    return [*_largest_first([*parts[:-1], part]), parts[-1]]


def explain_network(
    network: "Network", head: "Head", examples: Examples, labels: Sequence[int], names: Names
) -> tuple[str, list[list[Part]]]:
    """The method, and gradient x input of the first of some examples for some of the head's labels."""
    with torch.enable_grad(), _captured_inputs(network) as inputs:
        batch = examples.batch(np.zeros(1, np.intp))
        scores = head.scores(network(batch))[0]
        gradients = [
            torch.autograd.grad(scores[label], list(inputs.values()), retain_graph=True, allow_unused=True)
            for label in labels
        ]
    exact = isinstance(network, FC) and not network.hidden
    found = []
    for label, by_input in zip(labels, gradients, strict=True):
        pairs = [(layer, x, g) for (layer, x), g in zip(inputs.items(), by_input, strict=True) if g is not None]
        listed = _input_parts(pairs, examples, names)
        left = float(scores[label].detach()) - sum(part.value for part in listed)
        found.append([*_largest_first(listed), Part("bias" if exact else "rest", "bias" if exact else "rest", left)])
    return EXACT if exact else GRADIENT, found


@contextmanager
def _captured_inputs(network: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """The outputs of the layers that read features or tokens, as leaves of the graph, once the network has run."""
    captured: dict[nn.Module, Tensor] = {}

    def capture(layer: nn.Module, _: Any, output: Tensor) -> Tensor:
        captured[layer] = output.detach().requires_grad_()
        return captured[layer]

    layers = [layer for layer in network.modules() if isinstance(layer, SparseLinear | nn.Embedding)]
    hooks = [layer.register_forward_hook(capture) for layer in layers]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()


def _input_parts(pairs: Sequence[tuple[Any, Tensor, Tensor]], examples: Examples, names: Names) -> list[Part]:
    """The parts of tokens, of features, or of both."""
    if isinstance(examples, TokenExamples):
        return _token_parts(pairs, examples, names)
    if isinstance(examples, TextExamples):
        by_token = [isinstance(layer, nn.Embedding) for layer, _, _ in pairs]
        token_pairs, feature_pairs = (
            [p for p, is_token in zip(pairs, by_token, strict=True) if is_token is wanted] for wanted in (True, False)
        )
        return _token_parts(token_pairs, examples.tokens, names) + _feature_parts(
            feature_pairs, examples.features, names
        )
    return _feature_parts(pairs, examples, names)


def _feature_parts(pairs: Sequence[tuple[Any, Tensor, Tensor]], examples: Examples, names: Names) -> list[Part]:
    assert isinstance(examples, SparseExamples)
    x = examples.csr(np.zeros(1, np.intp))
    ids = torch.from_numpy(x.indices.astype(np.int64))
    effect = np.zeros(len(ids))
    for layer, _, gradient in pairs:
        effect += (layer.weight[ids] @ gradient[0]).detach().double().numpy() * x.data
    return _list_features(x, effect, names)


def _list_features(x: CsrArray, values: NDArray[np.float64], names: Names) -> list[Part]:
    """A part for each feature of a row, and one for all dimensions of a sentence embedding.  Shapes: (1, f), (m)"""
    named = np.array([names.has_name(int(f)) for f in x.indices], bool)
    listed = [
        Part("feature", names.feature(int(f)), float(value), {"feature": int(f), "input": round(float(at), 6)})
        for f, at, value in zip(x.indices[named], x.data[named], values[named], strict=True)
    ]
    if not named.all():
        listed.append(Part("embedding", "sentence embedding", float(values[~named].sum())))
    return listed


def _token_parts(pairs: Sequence[tuple[Any, Tensor, Tensor]], examples: TokenExamples, names: Names) -> list[Part]:
    ids = examples.ids[examples.offsets[0] : examples.offsets[1]]
    (_, x, gradient), *_ = pairs
    effect = (x * gradient).detach().double().flatten(0, -2).sum(-1).numpy()
    tokens = names.tokens or ()
    return [
        Part("token", tokens[i] if i < len(tokens) else str(i), float(effect[place]), {"position": place})
        for place, i in enumerate(ids.tolist())
    ]


def _list_rows(rows: "list[tuple[set[int], dict[str, Any]]]", label: int, values: NDArray[np.float64]) -> list[Part]:
    """A part for each neighbour, from `_describe_rows`.  Shapes: (k)"""
    return [
        Part("training row", f"row {details['row']}", float(value), {**details, "has label": label in ids})
        for (ids, details), value in zip(rows, values, strict=True)
    ]


def _describe_rows(
    training_rows: tuple[CsrArray, CsrArray], x: CsrArray, parts: OutputParts | ExtraParts, names: Names
) -> list[tuple[set[int], dict[str, Any]]]:
    """For each neighbour, the ids of its labels, and its weight, its labels and the features it shares with the row."""
    X, Y = training_rows
    value = dict(zip(x.indices.tolist(), x.data.tolist(), strict=True))
    found = []
    for row, weight in zip(parts.rows.tolist(), parts.similarity.tolist(), strict=True):
        ids = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
        entries = slice(X.indptr[row], X.indptr[row + 1])
        shared = {
            f: value[f] * at
            for f, at in zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True)
            if f in value and names.has_name(f)
        }
        strongest = sorted(shared, key=lambda f: -shared[f])[:N_SHARED]
        details = {
            "row": row,
            "weight": round(weight, 6),
            "labels": [names.label(i) for i in ids],
            "in common": [names.feature(f) for f in strongest],
        }
        found.append((set(ids), details))
    return found


def _largest_first(parts: list[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: -abs(part.value))


def _occurrences(name: str, words: Sequence[str]) -> list[int]:
    """Places of the words that have a feature: words with blanks between them, a prefix with a star, or an n-gram."""
    if name.endswith("*"):
        return [i for i, word in enumerate(words) if word.startswith(name[:-1])]
    sought = list(name) if is_unspaced(name) else name.split(" ")
    n = len(sought)
    places = [i for i in range(len(words) - n + 1) if list(words[i : i + n]) == sought]
    return sorted({i + j for i in places for j in range(n)}) or [
        i
        for i, word in enumerate(words)
        if name in f" {word} "  # an n-gram of letters, with blanks at the ends
    ]
