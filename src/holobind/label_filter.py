"""Labels that may be predicted: all but some, or only some, for one request or for good.

allowed = allowed_labels(n_labels, names, exclude=["spam"], only=None)
ranked_labels(head, outputs, k, allowed)       the k best allowed labels, exactly
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holobind.calibration import N_CONTEXT
from holobind.errors import LabelError, OptionError
from holobind.heads.added_scores import AddedScores, Scorer

MAX_EXTRA_LABELS = 256  # excluded labels up to which the ranking is made longer by as many; above, scores are masked
MAX_MASKED_BYTES = 1 << 26  # of the scores of all labels for some rows

Label = str | int
Allowed = NDArray[np.bool_]


class RankedLabels(NamedTuple):
    """The best labels of each row, and the best scores of the row among all labels, which calibration needs.

    Shapes: (rows, k), (rows, k), (rows, 5)
    """

    scores: Tensor
    labels: Tensor
    best: Tensor


def allowed_labels(
    n_labels: int,
    label_names: Sequence[str] | None,
    exclude: Iterable[Label] = (),
    only: Iterable[Label] | None = None,
    before: Allowed | None = None,
) -> Allowed | None:
    """Which labels may be predicted; None: all of them.

    exclude   names or ids of labels that may not
    only      names or ids of the labels that may, if not None; without those in `exclude`
    before    what was allowed before: labels that were excluded remain so

    Shapes: (L) -> (L)
    """
    excluded = label_ids("exclude", exclude, n_labels, label_names)
    allowed = np.ones(n_labels, bool) if before is None else before.copy()
    if only is not None:
        chosen = np.zeros(n_labels, bool)
        chosen[label_ids("only", only, n_labels, label_names)] = True
        allowed &= chosen
    allowed[excluded] = False
    if not allowed.any():
        raise OptionError("exclude and only leave no label that may be predicted; allow at least one")
    return None if allowed.all() else allowed


def ranked_labels(head: Scorer, h: Tensor, k: int, allowed: Tensor | None = None) -> RankedLabels:
    """The k best allowed labels of the network's outputs.

    allowed   in the head's order of labels

    Shapes: (rows, in), (L) -> 3 x (rows, k)
    """
    n_context = min(N_CONTEXT, head.n_labels)
    if allowed is None:
        scores, labels = head.top_k(h, max(k, n_context))
        return RankedLabels(scores[:, :k], labels[:, :k], scores[:, :n_context])
    n_excluded = int((~allowed).sum())
    if n_excluded <= MAX_EXTRA_LABELS:
        scores, labels = head.top_k(h, min(max(k + n_excluded, n_context), head.n_labels))
        kept = allowed[labels]
        first = torch.argsort((~kept).to(torch.uint8), dim=1, stable=True)[:, :k]
        return RankedLabels(scores.gather(1, first), labels.gather(1, first), scores[:, :n_context])
    ids = allowed.nonzero().flatten()
    step = max(1, MAX_MASKED_BYTES // (4 * head.n_labels))
    found: list[RankedLabels] = []
    for start in range(0, max(len(h), 1), step):
        rows = slice(start, start + step)
        scores = (head.part(rows) if isinstance(head, AddedScores) else head).scores(h[rows]).float()
        best = scores.topk(n_context, dim=1).values
        values, at = torch.sort(scores[:, ids], dim=1, descending=True, stable=True)
        found.append(RankedLabels(values[:, :k], ids[at[:, :k]], best))
    return RankedLabels(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def label_ids(option: str, labels: Iterable[Label], n_labels: int, names: Sequence[str] | None) -> NDArray[np.int64]:
    """The ids of labels that are given by name or by id. An empty name is no label: that of the id was forgotten."""
    if isinstance(labels, str):
        raise OptionError(f"{option} is a list of labels; got one text, {labels[:40]!r}")
    wanted: Collection[Label] = list(labels)
    by_name = {} if names is None or not wanted else {name: i for i, name in enumerate(names) if name}
    ids = np.empty(len(wanted), np.int64)
    for i, label in enumerate(wanted):
        if isinstance(label, str):
            found = by_name.get(label)
            if found is None and names is None and label.isdecimal() and len(label) < 10:
                found = int(label)
        else:
            found = label if isinstance(label, int | np.integer) and not isinstance(label, bool) else None
        if found is None or not 0 <= int(found) < n_labels:
            known = f"ids from 0 to {n_labels - 1}"
            if names is not None:
                known = f"{len(by_name)} names, such as {next(iter(by_name), '')[:40]!r}"
            raise LabelError(f"{option}: this model has no label {str(label)[:60]!r}; it has {known}")
        ids[i] = int(found)
    return ids
