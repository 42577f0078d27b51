"""The labels of rows: methods of `Model` that rank labels, choose sets of them, and explain their scores."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from holobind import explanation
from holobind._columns import as_list, as_texts
from holobind._processes import ALONE, Processes
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback, RowIndex
from holobind.calibration import N_CONTEXT, Calibration, calibrate, n_candidates
from holobind.codebooks.ranking import merge_top_k
from holobind.data.batches import Examples, TokenExamples
from holobind.data.csr import checked_csr
from holobind.errors import DataError, OptionError
from holobind.heads.added_scores import Scorer
from holobind.label_filter import Allowed, Label, RankedLabels, allowed_labels, label_ids, ranked_labels
from holobind.label_sets import Objective, Ranking, all_probabilities, choose_sets
from holobind.label_text import N_BEST_LABELS, LabelText
from holobind.ridge_knn import ExtraScores, feature_rows
from holobind.ridge_knn.explain import extra_parts

if TYPE_CHECKING:
    from holobind.heads import Head
    from holobind.metrics import Frequencies
    from holobind.networks import Network

Inputs = Any  # a scipy sparse matrix, a dense array, a sequence of texts, or examples

DEFAULT_K = 5
NO_CALIBRATION = (
    "this model has no calibrated probabilities: no rows were held out when it was trained, or too few; "
    "`Model.calibrate` makes them from labelled rows"
)


class LabelPredictions:
    """Rankings, sets, probabilities and explanations of the labels of rows."""

    calibration: Calibration | None
    allowed: Allowed | None
    label_names: list[str] | None
    tfidf: Any
    encoder: Any
    tokenizer: Any
    label_text: LabelText | None
    extra_scores: ExtraScores | None
    _label_order: Tensor | None

    if TYPE_CHECKING:
        network: Network
        head: Head
        frequencies: Frequencies
        n_labels: int
        examples: Callable[[Inputs], Examples]
        outputs: Callable[[Examples, RowIndex], Tensor]
        scorer: Callable[[Examples, RowIndex], Scorer]
        scores: Callable[[Inputs], FloatArray]
        map_outputs: Callable[..., Any]
        head_label_ids: Callable[[Tensor], Tensor]

    def top_k(
        self,
        inputs: Inputs,
        k: int | None = None,
        *,
        exclude: Iterable[Label] = (),
        only: Iterable[Label] | None = None,
        distributed: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> tuple[FloatArray, IntArray]:
        """The k best labels of each row: their scores, best first, and their ids.  Shapes: -> 2 x (rows, k)

        A row without any feature that the model knows gets the labels that are best on average; `examples(inputs)`
        gives inputs that this method takes, too, and says which rows these are.

        k               by default 5, or as many labels as may be predicted
        exclude, only   names or ids of labels that may not be predicted, or of all that may
        distributed     all processes of torch.distributed call this with the same inputs; each scores a range of the
                        labels, and all get the same result
        """
        ranking = self.rank(
            inputs, k, exclude=exclude, only=only, distributed=distributed, on_progress=on_progress, calibrated=False
        )
        return ranking.scores, ranking.ids

    def suggest(self, texts: Sequence[str]) -> tuple[FloatArray, IntArray]:
        """The 30 best labels of texts, as `label_text.Suggest`, before the model has label texts.

        Scores are 0 for a text without any word that the model knows, and for one that is blank.

        Shapes: -> (texts, 30), (texts, 30)
        """
        examples = self.examples(list(texts))
        n_allowed = self.n_labels if self.allowed is None else int(self.allowed.sum())
        scores, ids = self.top_k(examples, min(N_BEST_LABELS, n_allowed))
        return np.where(examples.empty_rows()[:, None], 0, scores), ids

    def rank(
        self,
        inputs: Inputs,
        k: int | None = None,
        *,
        exclude: Iterable[Label] = (),
        only: Iterable[Label] | None = None,
        distributed: bool = False,
        processes: Processes = ALONE,
        on_progress: ProgressCallback | None = None,
        calibrated: bool = True,
    ) -> Ranking:
        """The k best labels of each row with their scores and calibrated probabilities, as `top_k`.

        processes   that call it together, with the same model and rows: each ranks some of the batches
        """
        allowed = allowed_labels(self.n_labels, self.label_names, exclude, only, self.allowed)
        n_allowed = self.n_labels if allowed is None else int(allowed.sum())
        k = min(DEFAULT_K, n_allowed) if k is None else k
        if not 1 <= k <= n_allowed:
            raise OptionError(f"k must be from 1 to the number of labels, {n_allowed}; got {k}")
        examples = self.examples(inputs)
        n, width = len(examples), min(N_CONTEXT, self.n_labels)
        scores, ids, context = np.zeros((n, k), np.float32), np.zeros((n, k), np.int64), np.zeros((n, width))
        mask = None if allowed is None else torch.from_numpy(allowed)
        if mask is not None and self._label_order is not None:
            mask = mask[self._label_order.cpu()]

        def best(head: Scorer, h: Tensor) -> RankedLabels:
            with torch.inference_mode():
                if distributed and mask is None:
                    found = RankedLabels(*distributed_top_k(head, h, max(k, width)), h[:0])
                    found = RankedLabels(found.scores[:, :k], found.labels[:, :k], found.scores[:, :width])
                else:
                    found = ranked_labels(head, h, k, None if mask is None else mask.to(h.device))
                order = self._label_order
                return found if order is None else found._replace(labels=order[found.labels])

        outputs = self.map_outputs(examples, best, on_progress, parallel=not distributed, processes=processes)
        for index, found in outputs:
            scores[index], ids[index] = found.scores.float().cpu().numpy(), found.labels.cpu().numpy()
            context[index] = found.best.float().cpu().numpy()
        for array in (scores, ids, context):
            processes.sum(array)  # rows of others are 0
        calibration = self.calibration if calibrated else None
        return Ranking(scores, ids, None if calibration is None else calibration(scores, context))

    def choose(
        self,
        inputs: Inputs,
        objective: str | Objective = "micro-f1",
        *,
        exclude: Iterable[Label] = (),
        only: Iterable[Label] | None = None,
        min_probability: float = 0.0,
        on_progress: ProgressCallback | None = None,
    ) -> Ranking:
        """The labels that each row gets, best first, as many as the objective wants; others have id -1.

        objective         "micro-f1", "sample-f1", "precision=0.8" or "recall=0.8" (`holobind.label_sets`)
        min_probability   labels below it are left out

        Shapes: -> (rows, k) each, with k the size of the largest set, and at least 1
        """
        objective, calibration = Objective.parse(objective), self._calibrated()
        allowed = allowed_labels(self.n_labels, self.label_names, exclude, only, self.allowed)
        k = min(self._n_candidates(), self.n_labels if allowed is None else int(allowed.sum()))
        ranking = self.rank(inputs, k, exclude=exclude, only=only, on_progress=on_progress)
        return choose_sets(ranking, objective, calibration, min_probability)

    def candidates(
        self, inputs: Inputs, objective: str | Objective = "micro-f1", *, on_progress: ProgressCallback | None = None
    ) -> tuple[Ranking, IntArray]:
        """The ranking that `choose` chooses from, and the ids it chooses, -1 for no label.

        A model without probabilities chooses as many labels as a training row has on average.
        """
        objective = Objective.parse(objective)
        n_allowed = self.n_labels if self.allowed is None else int(self.allowed.sum())
        ranking = self.rank(inputs, min(self._n_candidates(), n_allowed), on_progress=on_progress)
        if self.calibration is None:
            counts, n_rows = self.frequencies
            return ranking, ranking.ids[:, : max(round(counts.sum() / max(n_rows, 1)), 1)]
        return ranking, choose_sets(ranking, objective, self.calibration).ids

    def predict_proba(self, inputs: Inputs) -> FloatArray:
        """The calibrated probability of every label; 0 for labels that may not be predicted.  Shapes: -> (rows, L)"""
        probabilities = all_probabilities(self._calibrated(), self.scores(inputs))
        if self.allowed is not None:
            probabilities[:, ~self.allowed] = 0
        return probabilities

    def explain(
        self, inputs: Inputs, labels: Sequence[Label] | None = None, k: int = 1
    ) -> "list[explanation.Explanation]":
        """Which words or features, and which training rows, made the scores of labels: parts that add up to them.

        inputs   one text in a list, or one row of features
        labels   names or ids; None: the k best labels

        For the default model, and for linear networks, the parts are exact; for other networks they are gradient x
        input (`holobind.explanation`).
        """
        inputs = as_list(inputs)
        examples = self.examples(inputs)
        if len(examples) != 1:
            raise DataError(f"explain takes one text in a list, or one row of features; got {len(examples)}")
        scores = self.scores(examples)[0]
        if labels is None:
            ids = self.top_k(examples, min(k, self.n_labels))[1][0].tolist()
        else:
            ids = label_ids("explain", labels, self.n_labels, self.label_names).tolist()
        p = None if self.calibration is None else all_probabilities(self.calibration, scores[None].copy())[0]
        features = None if self.tfidf is None else self.tfidf.words or None
        tokens = None if self.tokenizer is None else self.tokenizer.tokens
        embedding = None if self.encoder is None else (self.network.n_features or 0) - self.encoder.dim
        names = explanation.Names(self.label_names, features, tokens, embedding)
        head_ids = self.head_label_ids(torch.tensor(ids)).tolist()
        method, parts = explanation.explain(self.network, self.head, examples, head_ids, names)
        if self.extra_scores is not None:
            parts = self._with_extra_scores(examples, ids, parts, names)
        if self.label_text is not None:
            parts = self._with_label_text(examples, ids, parts, names)
        texts = as_texts(inputs)
        text = texts[0] if texts else None
        return [
            explanation.Explanation.of(i, names, scores, p, method, found, text)
            for i, found in zip(ids, parts, strict=True)
        ]

    def _with_extra_scores(
        self, examples: Examples, ids: list[int], parts: "list[list[explanation.Part]]", names: explanation.Names
    ) -> "list[list[explanation.Part]]":
        """The parts of labels' scores for one row, with what training rows and label trees add."""
        assert self.extra_scores is not None
        x = feature_rows(examples, np.zeros(1, np.intp), self.extra_scores.n_features)
        if isinstance(examples, TokenExamples):  # neighbours share tokens
            names = replace(names, features=names.tokens)
        order = None if self._label_order is None else self._label_order.cpu().numpy()
        added = extra_parts(self.extra_scores, x, np.array(ids), self.network, self.head, order)
        return explanation.with_extra_scores(parts, self.extra_scores, added, x, ids, names)

    def _with_label_text(
        self, examples: Any, ids: Sequence[int], parts: "list[list[explanation.Part]]", names: explanation.Names
    ) -> "list[list[explanation.Part]]":
        """The parts of labels' scores for one row, with what their texts add."""
        assert self.label_text is not None
        row = np.zeros(1, np.intp)
        with torch.inference_mode():
            h, scorer = self.outputs(examples, row), self.scorer(examples, row)
            scores, labels = (each.cpu().numpy() for each in scorer.top_k(h, min(N_BEST_LABELS, self.n_labels)))
        rows = examples.text_rows.take(row)
        values, raised = self.label_text.added(rows, scores, labels, self.frequencies.counts, scorer, h)
        added = dict(zip(raised[0].tolist(), values[0].tolist(), strict=True))
        found = []
        for label, of_label in zip(ids, parts, strict=True):
            if label not in added:
                found.append(of_label)
                continue
            words, related = self.label_text.explain(rows, scores, labels, label)
            like = [names.label(other) for other in related]
            found.append(explanation.with_label_text(of_label, added[label], words, like))
        return found

    def calibrate(self, inputs: Inputs, Y: CsrArray) -> None:
        """Fit the calibration to labelled rows that the model was not trained on.  Shapes: Y (rows, L)"""
        allowed, self.allowed = self.allowed, None
        try:
            found = calibrate(lambda k: self.top_k(inputs, k), checked_csr(Y, "Y", self.n_labels))
        finally:
            self.allowed = allowed
        self.calibration = found or self.calibration

    def restrict(self, *, exclude: Iterable[Label] = (), only: Iterable[Label] | None = None) -> None:
        """Set for good which labels may be predicted; without arguments, all labels may again.

        A file keeps it. Requests may exclude more labels, and not allow others.
        """
        excluded = [*exclude, *self.network.free_labels()] if not isinstance(exclude, str) else exclude
        self.allowed = allowed_labels(self.n_labels, self.label_names, excluded, only)

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise OptionError(NO_CALIBRATION)
        return self.calibration

    def _n_candidates(self) -> int:
        counts, n_rows = self.frequencies
        return n_candidates(float(counts.sum()) / max(n_rows, 1), self.n_labels)


def distributed_top_k(head: Scorer, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Merge the top k of each process's range of labels; each process receives 12 k bytes a row from each other."""
    if not torch.distributed.is_initialized():
        return head.top_k(h, k)
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    ranges = [head.label_range(r, world_size) for r in range(world_size)]
    gathered: list[list[Tensor]] = []
    for mine in head.top_k(h, k, labels=ranges[rank]):
        padded = mine.new_zeros(len(h), k)  # a range may have fewer than k labels
        padded[:, : mine.shape[1]] = mine
        gathered.append([torch.empty_like(padded) for _ in range(world_size)])
        torch.distributed.all_gather(gathered[-1], padded)
    sizes = [min(k, last - first) for first, last in ranges]
    found = [(scores[:, :n], ids[:, :n]) for scores, ids, n in zip(*gathered, sizes, strict=True)]
    return merge_top_k(found, k)
