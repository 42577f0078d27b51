"""Fit label texts to a model: how much they count is chosen on held-out rows, a tenth of whose labels are hidden.

A hidden label is treated as if no training row had it: its score is 0, which is what the score of a label that was
never seen is on average, it is not among the suggestions for any document or name, and it counts as a label without
rows. No second model is needed.

First, the weights of labels with rows are those with the largest nDCG@5 + PSP@1 + recall@10 of other labels. Then, the
weights of labels without rows are those with the largest recall@10 + recall@5 / 2 of the hidden labels, among those
with which recall@10 of all labels is as large as without any texts, and the others lose at most MAX_LOSS points of
P@1, P@5 and nDCG@5. A label without rows must take the place of another one in the best ten; P@5 of the others need not
fall, because few labels without rows come among the best five.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from holobind import metrics
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback
from holobind.calibration import Calibration, calibrate
from holobind.codebooks import Codebook
from holobind.data.csr import normalise_rows
from holobind.data.encoder_features import EncoderFeatures
from holobind.heads.added_scores import AddedScores
from holobind.label_text import N_BEST_LABELS, LabelText, Suggest, TextRows, own_scores, suggested
from holobind.label_text_weights import RELATED_WEIGHT, TextWeights
from holobind.ridge_knn import HeldOut

if TYPE_CHECKING:
    from holobind.data.sentence_encoder import SentenceEncoder

HIDDEN_FRACTION = 0.1  # of the labels
MIN_HIDDEN_LABELS = 20  # different ones, and labels of held-out rows, that must be hidden to choose weights by them
N_CANDIDATES, N_ZERO_CANDIDATES = 192, 64  # labels of a row that the choices are made among, with rows and without
N_RANKED = 100  # best labels without texts, which compete with them
ZERO_WEIGHTS = (1.0, 1.5, 2.0, 2.5, 4.0)
ZERO_LABELS = (1, 2, 3, 4, 5)
STRONG_WEIGHTS = (0.0, 1.5, 2.5, 4.0)
WEIGHTS = (0.0, 0.75, 1.5, 3.0, 5.0)
HALF_ROWS = (3.0, 10.0, 30.0, 100.0)
MAX_LOSS = 0.1  # points that labels with rows may lose
LOW_QUANTILE = 0.1  # of the best scores of held-out rows, and of the best texts of labels without rows
FIFTH_QUANTILE = 0.02  # of the fifth best scores: in these rows, labels without rows may come among the best five
EMBEDDING_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
DEFAULT_EMBEDDING_WEIGHT = 0.5  # where held-out rows are too few


@dataclass(frozen=True)
class LabelTextFit:
    """Label texts with their weights, the calibration of scores with them, and a summary for a model's metadata."""

    label_text: LabelText
    calibration: Calibration | None
    summary: dict[str, Any]


def fit_label_text(
    texts: Sequence[Sequence[str]],
    documents: Sequence[str],
    counts: IntArray,
    codebook: Codebook,
    suggest: Suggest,
    held: HeldOut | None,
    encoder: "SentenceEncoder | None" = None,
    *,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> LabelTextFit:
    """Index the texts of each label, and choose how much they count.

    texts       of each label; a label may have none
    documents   the texts of all training rows
    counts      (L) training rows of each label
    suggest     the best labels of texts by the model, without label texts (`Model.suggest`)
    held        held-out rows of these; None: the weights are the default
    """
    label_text = LabelText.fit(texts, documents)
    hidden = np.zeros(len(counts), bool) if held is None else _hidden_labels(held, seed)
    names = {label: texts[label][0] for label in np.flatnonzero((counts == 0) | hidden).tolist() if texts[label]}
    suggestions = suggested(suggest, names, (len(texts), len(counts)))
    label_text = label_text.with_suggestions(_rows_of(suggestions, counts == 0))
    flat = [text for of_label in texts for text in (of_label or ("",))]
    embeddings = None if encoder is None else encoder.embed(flat, cache=True, on_progress=on_progress)
    features = None if encoder is None else EncoderFeatures.of(encoder, DEFAULT_EMBEDDING_WEIGHT)
    weights = TextWeights(embedding_weight=0.0 if embeddings is None else DEFAULT_EMBEDDING_WEIGHT)
    summary: dict[str, Any] = {"texts": len(flat), "labels without rows": int((counts == 0).sum())}
    calibration = None
    if held is not None:
        held_texts = [documents[i] for i in held.rows.tolist()]
        label_text = label_text.with_weights(weights, embeddings, features)
        rows = label_text.rows(held_texts, None if encoder is None else encoder.embed(held_texts, cache=True))
        scorer = codebook if held.added is None else AddedScores(codebook, *map(torch.from_numpy, held.added))
        best = scorer.top_k(held.outputs, min(5, scorer.n_labels))[0].numpy()
        lowest = [max(float(np.quantile(best[:, i], q)), 0.0) for i, q in ((0, LOW_QUANTILE), (-1, FIFTH_QUANTILE))]
        weights = replace(weights, min_best=lowest[0], min_fifth=lowest[1])
        others = normalise_rows(_columns(suggestions, ~hidden))
        trial = _Trial.of(label_text.with_suggestions(others), rows, held, scorer, hidden)
        if trial is not None:
            weights, validated = trial.choose(weights)
            summary["validation"] = validated
        label_text = label_text.with_weights(weights, embeddings, features)
        calibration = calibrate(lambda k: _with_texts(label_text, rows, held, scorer).top_k(held.outputs, k), held.Y)
    label_text = label_text.with_weights(weights, embeddings, features)
    return LabelTextFit(label_text, calibration, summary | asdict(weights))


def _with_texts(label_text: LabelText, rows: TextRows, held: HeldOut, scorer: Any) -> AddedScores:
    best = scorer.top_k(held.outputs, min(N_BEST_LABELS, scorer.n_labels))
    found = []
    for fold, counts in _folds(held):
        part = rows.take(np.arange(fold.start, fold.stop))
        of_fold = scorer.part(fold) if isinstance(scorer, AddedScores) else scorer
        known = best[0][fold].float().numpy(), best[1][fold].numpy()
        found.append(label_text.added(part, *known, counts, of_fold, held.outputs[fold]))
    values, labels = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return AddedScores(scorer, torch.from_numpy(values), torch.from_numpy(labels))


def _folds(held: HeldOut) -> list[tuple[slice, IntArray]]:
    ends = np.cumsum([0, *held.sizes]).tolist()
    return [(slice(a, b), counts) for a, b, counts in zip(ends[:-1], ends[1:], held.counts, strict=True)]


@dataclass(frozen=True, eq=False)
class _Trial:
    """Held-out rows with some labels hidden: all that the ranking of any weights needs.

    others, hidden   the labels of the rows: those that are not hidden, and those that are
    propensities     of labels
    best             (n, 1) best score of each row
    base, base_ids   (n, b) scores and ids of the best labels, without those in `labels`
    labels           (n, m) candidates by their texts, -1 for none
    scores           (n, m) their scores without texts; 0 for labels without rows
    match, related, similar   (n, m) how they compare with the rows (`label_text`)
    n_rows           (n, m) how many kept rows have them
    """

    others: CsrArray
    hidden: CsrArray
    propensities: NDArray[np.float64]
    best: FloatArray
    base: FloatArray
    base_ids: IntArray
    labels: IntArray
    scores: FloatArray
    match: FloatArray
    related: FloatArray
    similar: FloatArray
    n_rows: IntArray

    @classmethod
    def of(
        cls, label_text: LabelText, rows: TextRows, held: HeldOut, scorer: Any, is_hidden: NDArray[np.bool_]
    ) -> "_Trial | None":
        """None if too few labels of the rows would be hidden."""
        n_labels = scorer.n_labels
        hidden, others = _columns(held.Y, is_hidden), _columns(held.Y, ~is_hidden)
        if min(int(is_hidden.sum()), hidden.nnz) < MIN_HIDDEN_LABELS:
            return None
        v: Tensor = held.outputs
        scores, ids = (each.numpy() for each in scorer.top_k(v, min(N_RANKED + N_BEST_LABELS, n_labels)))
        order = np.argsort(is_hidden[ids], axis=1, kind="stable")  # hidden ones last, the others still best first
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1).astype(np.float32)
        scores[is_hidden[ids]] = 0
        found = []
        for fold, counts in _folds(held):
            n_rows = np.where(is_hidden, 0, counts)
            part = rows.take(np.arange(fold.start, fold.stop))
            queries = scores[fold, :N_BEST_LABELS], ids[fold, :N_BEST_LABELS]
            found.append(_candidates(label_text, part, *queries, n_rows))
        labels, match, related, similar, n_rows = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        at = torch.from_numpy(np.maximum(labels, 0))
        raised = np.where(n_rows == 0, 0, scorer.scores_of(v, at).float().numpy())  # crosstalk, which texts replace
        base = scores.copy()
        for i, (mine, candidates) in enumerate(zip(ids, labels, strict=True)):
            base[i, np.isin(mine, candidates) | is_hidden[mine]] = -np.inf
        kept_counts = metrics.Frequencies(held.counts.max(0), max(3, int(held.counts.max(0).sum())))
        return cls(
            others, hidden, metrics.propensity(kept_counts), scores[:, :1], base, ids,
            labels, np.where(labels < 0, -np.inf, raised).astype(np.float32),
            match, related, similar, n_rows,
        )  # fmt: skip

    def choose(self, weights: TextWeights) -> tuple[TextWeights, dict[str, Any]]:
        """The best weights, and what they give."""
        without = self.measure(replace(weights, zero_labels=0, weight=0.0))
        grid = (replace(weights, zero_labels=0, weight=w, half_rows=h) for w, h in product(WEIGHTS, HALF_ROWS))
        chosen = max(grid, key=lambda tried: self.measure(tried).of_learned)  # the first of equal ones
        weights = replace(weights, weight=chosen.weight, half_rows=chosen.half_rows)
        tried = []
        for of_embeddings in EMBEDDING_WEIGHTS if weights.embedding_weight else (0.0,):
            low = self.low_text(of_embeddings)
            for z, q, strong in product(ZERO_WEIGHTS, ZERO_LABELS, STRONG_WEIGHTS):
                tried.append(
                    replace(
                        weights,
                        zero_weight=z,
                        zero_labels=q,
                        strong_weight=strong,
                        strong_text=low,
                        embedding_weight=of_embeddings,
                    )
                )
        found = [self.measure(each) for each in tried]
        best = max(range(len(tried)), key=lambda i: (min(found[i].room(without), 0.0), found[i].of_hidden))
        return tried[best], {
            "hidden labels": int(self.hidden.nnz),
            "with texts": found[best].as_json(),
            "without texts": without.as_json(),
        }

    def low_text(self, embedding_weight: float) -> float:
        """The text score that the best label without rows reaches in nine of ten rows."""
        texts = TextWeights(embedding_weight=embedding_weight).text_score(self.match, self.related, self.similar)
        best = np.where((self.n_rows == 0) & (self.labels >= 0), texts, 0).max(1)
        return float(np.quantile(best, LOW_QUANTILE))

    def measure(self, weights: TextWeights) -> "_Measures":
        ranked = self.rank(weights)
        n_rows = max(int((np.diff(self.others.indptr) > 0).sum()), 1)
        others, hidden = metrics.hits(self.others, ranked), metrics.hits(self.hidden, ranked)
        return _Measures(
            p1=100 * float(others[:, :1].sum()) / n_rows,
            p5=20 * float(others[:, :5].sum()) / n_rows,
            ndcg=float(metrics.ndcg_at_k(self.others, ranked[:, :5])[-1]),
            psp1=float(metrics.psp_at_k(self.others, ranked[:, :1], self.propensities)[0]),
            recall=100 * float(others.sum()) / max(self.others.nnz, 1),
            recall_of_all=100 * float(others.sum() + hidden.sum()) / (self.others.nnz + self.hidden.nnz),
            recall_of_hidden=100 * float(hidden.sum()) / self.hidden.nnz,
            recall_at_5_of_hidden=100 * float(hidden[:, :5].sum()) / self.hidden.nnz,
        )

    def rank(self, weights: TextWeights) -> IntArray:
        """The ten best labels of each row.  Shapes: -> (n, 10)"""
        match = np.where(self.labels >= 0, self.match, 0)
        texts = np.where(self.labels >= 0, weights.text_score(self.match, self.related, self.similar), 0)
        raised = self.scores + weights.learned(match, self.n_rows, self.scores, self.best)
        scores = np.hstack([np.where(self.n_rows > 0, raised, -np.inf), self.base])
        fifth = -np.partition(-scores, 4, axis=1)[:, 4:5] if scores.shape[1] > 4 else scores.min(1, keepdims=True)
        raised += weights.unseen(texts, self.n_rows, self.best, fifth)
        scores, ids = np.hstack([raised, self.base]), np.hstack([self.labels, self.base_ids])
        k = min(10, scores.shape[1])
        at = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, at, 1), axis=1, kind="stable")
        return np.take_along_axis(ids, np.take_along_axis(at, order, 1), 1)


@dataclass(frozen=True)
class _Measures:
    """What weights give on held-out rows, in percent: of labels that are not hidden, of all, and of hidden ones."""

    p1: float
    p5: float
    ndcg: float
    psp1: float
    recall: float
    recall_of_all: float
    recall_of_hidden: float
    recall_at_5_of_hidden: float

    @property
    def of_learned(self) -> float:
        return self.ndcg + self.psp1 + self.recall

    @property
    def of_hidden(self) -> float:
        return self.recall_of_hidden + 0.5 * self.recall_at_5_of_hidden

    def room(self, without: "_Measures") -> float:
        """How much of the largest loss that is allowed is left, compared with no texts; negative if it is exceeded."""
        gains = (self.p1 - without.p1, self.p5 - without.p5, self.ndcg - without.ndcg)
        return min(min(gains) + MAX_LOSS, self.recall_of_all - without.recall_of_all)

    def as_json(self) -> dict[str, float]:
        return {
            "P@1": round(self.p1, 2),
            "P@5": round(self.p5, 2),
            "nDCG@5": round(self.ndcg, 2),
            "PSP@1": round(self.psp1, 2),
            "recall@10": round(self.recall, 2),
            "recall@10 of all labels": round(self.recall_of_all, 2),
            "recall@10 of hidden labels": round(self.recall_of_hidden, 2),
            "recall@5 of hidden labels": round(self.recall_at_5_of_hidden, 2),
        }


def _candidates(
    label_text: LabelText, rows: TextRows, best_scores: FloatArray, best_labels: IntArray, n_rows: IntArray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray]:
    """The labels that texts may raise most: ids, match, related, similar, and numbers of kept rows.

    Shapes: -> 5 x (n, m)
    """
    n_rows = n_rows[: label_text.n_labels]
    unseen = torch.from_numpy(n_rows == 0)
    found = []
    for chunk, match, related, cosines in label_text.text_scores(rows, best_scores, best_labels):
        similar = np.zeros_like(match) if cosines is None else np.maximum(cosines, 0)
        own = own_scores(best_scores[chunk], best_labels[chunk], label_text.n_labels)
        learned = TextWeights().learned(match, n_rows, own, best_scores[chunk, :1])
        texts = match + RELATED_WEIGHT * related + similar
        parts = []
        for chosen, values, m in ((~unseen, learned, N_CANDIDATES), (unseen, texts, N_ZERO_CANDIDATES)):
            masked = torch.from_numpy(values).masked_fill(~chosen, -1.0)
            largest, at = masked.topk(min(m, values.shape[1]), dim=1)
            parts.append(torch.where(largest > 0, at, -1))
        labels = torch.cat(parts, 1).numpy()
        at = np.maximum(labels, 0)
        found.append((labels, *(np.take_along_axis(values, at, 1) for values in (match, related, similar)), n_rows[at]))
    ids, match, related, similar, seen = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return ids, match, related, similar, seen


def _hidden_labels(held: HeldOut, seed: int) -> NDArray[np.bool_]:
    """Labels to hide: a tenth of those that kept rows have.  Shapes: -> (L)"""
    n_rows = held.counts.max(0)
    seen = np.flatnonzero(n_rows > 0)
    hidden = np.zeros(len(n_rows), bool)
    hidden[np.random.default_rng([seed, 7]).permutation(seen)[: round(HIDDEN_FRACTION * len(seen))]] = True
    return hidden


def _columns(Y: CsrArray, chosen: NDArray[np.bool_]) -> CsrArray:
    """A matrix with some of the columns; the others are empty.  Shapes: (n, L), (L) -> (n, L)"""
    kept = chosen[Y.indices]
    indptr = np.append(0, np.cumsum(kept))[Y.indptr]
    found: CsrArray = csr_array((Y.data[kept], Y.indices[kept], indptr), shape=Y.shape)
    return found


def _rows_of(matrix: CsrArray, chosen: NDArray[np.bool_]) -> CsrArray:
    """A matrix with some of the rows; the others are empty.  Shapes: (n, L), (n) -> (n, L)"""
    kept = np.repeat(chosen[: matrix.shape[0]], np.diff(matrix.indptr))
    indptr = np.append(0, np.cumsum(kept))[matrix.indptr]
    found: CsrArray = csr_array((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)
    return found
