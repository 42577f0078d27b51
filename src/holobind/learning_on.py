"""Learning on: methods of `Model` that add and remove rows and labels without another fit.

model = model.update(texts, labels)          more rows; names that are new become labels
model = model.forget(rows=[3, 7])            fewer rows, or labels

Each returns a new model, and the old one stays as it was. `ridge_knn.update` has the equations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from holobind import metrics
from holobind._checks import check_names
from holobind._columns import as_list
from holobind._types import CsrArray, IntArray, ProgressCallback
from holobind.calibration import Calibration
from holobind.data.batches import Examples, SparseExamples
from holobind.data.csr import from_label_ids, normalise_rows
from holobind.data.label_texts import as_label_texts, match_labels
from holobind.errors import DataError, LabelError, OptionError
from holobind.heads import HolographicHead
from holobind.label_filter import Allowed, Label, label_ids
from holobind.networks import Network
from holobind.ridge_knn import RidgeKnn, add_rows, refit_trees, remove_labels, remove_rows
from holobind.ridge_knn.update import learning_state, stored_precision

FORGOTTEN_NAME = ""  # of an id whose label was forgotten
LabelSets = Iterable[Iterable[Label]]


class LearningOn:
    """Updates of a model that keeps what they need; any other model raises an OptionError."""

    label_names: list[str] | None
    calibration: Calibration | None
    allowed: Allowed | None
    metadata: dict[str, Any]
    normalise: bool
    tfidf: Any
    encoder: Any
    label_text: Any

    if TYPE_CHECKING:
        network: Network
        n_labels: int
        suggest: Any
        examples: Callable[[Any], Examples]

    @property
    def can_learn_on(self) -> bool:
        """Whether it keeps what updates need."""
        return isinstance(self.network, RidgeKnn) and self.network.learning_on is not None

    def update(
        self,
        inputs: Any,
        labels: LabelSets,
        *,
        rejected: LabelSets | None = None,
        label_texts: Any = None,
        reweigh: bool = False,
        refit: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Self:
        """The model after more rows, as if it had been fitted to all of them.

        inputs     texts, or rows of features, as for prediction
        labels     for each row, the names of its labels, or their ids; names that are new become labels
        rejected   for each row, labels that are not right, as a person has said: their target is -1, and that of any
                   other absent label is 0. With an empty list in `labels`, the row says only that
        label_texts   texts of new labels, where the model has texts of its labels: a file, or {label: text or [name,
                   synonym, ...]}. Labels that neither the model nor a row has are added, without rows. The text of
                   any other new label is its name
        reweigh    set the weights of rare labels by the new counts, in an orbit codebook, too, where that takes longer
        refit      fit trees anew, too; without it they stay as they are

        The penalty, the features (vocabulary and idf), the settings of the kNN step and the calibration stay as they
        are. Label ids stay, too; new labels get the ids after them, or those of forgotten labels.
        """
        network = self._updatable()
        X = self._rows(inputs)
        names = None if self.label_names is None else list(self.label_names)
        free = [] if network.label_trees else network.free_labels()  # a tree may know the label that had the id
        known = _LabelIds(network.n_labels, names, free)
        ids = known.of("labels", labels, X.shape[0])
        wrong = known.of("rejected", rejected, X.shape[0], may_add=False) if rejected is not None else None
        texts = self._texts_of_new_labels(known, label_texts)
        if not X.shape[0] and not known.n_new:
            return self
        Y = from_label_ids(ids, len(known))
        R = None if wrong is None else from_label_ids(wrong, len(known))
        after = add_rows(network, X, Y, R, reweigh=reweigh)
        changes = {"rows added": X.shape[0], "labels added": known.n_new}
        return self._learned(after, known.names, changes, refit, on_progress, texts)

    def forget(
        self,
        *,
        rows: Iterable[int] | None = None,
        inputs: Any = None,
        labels: Iterable[Label] | None = None,
        reweigh: bool = False,
        refit: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> Self:
        """The model as if some rows, or some labels, had never been in its training data.

        rows     numbers of training rows, from 0, in the order of the training data and then of updates
        inputs   texts, or rows of features: all training rows with these features
        labels   names or ids. Their ids stay, without a name, and are never predicted

        `reweigh` and `refit` as in `update`: without `refit`, trees keep what they have learned of forgotten rows.
        """
        if sum(given is not None for given in (rows, inputs, labels)) != 1:
            raise OptionError("forget: give rows, inputs or labels, one of them")
        network = self._updatable()
        if labels is not None:
            ids = np.unique(label_ids("forget", labels, self.n_labels, self.label_names))
            gone_ids, names = set(ids.tolist()), self.label_names
            if twice := gone_ids & set(network.free_labels()):
                raise LabelError(f"forget: this model has no label {min(twice)}; it was forgotten before")
            if names is not None:
                names = [FORGOTTEN_NAME if i in gone_ids else name for i, name in enumerate(names)]
            after = remove_labels(network, ids) if len(ids) else network
            texts: dict[int, list[str]] = {i: [] for i in gone_ids}
            return self._learned(after, names, {"labels forgotten": len(ids)}, refit, on_progress, texts)
        gone = _row_numbers(rows, network.n_training_rows) if rows is not None else self._find_rows(inputs)
        after = remove_rows(network, gone, reweigh=reweigh) if len(gone) else network
        return self._learned(after, self.label_names, {"rows forgotten": len(gone)}, refit, on_progress)

    def check_can_learn_on(self) -> None:
        """Raise an OptionError unless it keeps what updates need."""
        self._updatable()

    def _updatable(self) -> RidgeKnn:
        if not isinstance(self.network, RidgeKnn):
            raise OptionError(
                f"a {self.network.kind} network has no closed form that can be updated; train the default model"
            )
        learning_state(self.network)
        return self.network

    def _texts_of_new_labels(self, known: "_LabelIds", label_texts: Any) -> dict[int, list[str]]:
        """The texts of new labels by id; labels that only have a text are added to the known ones."""
        if label_texts is None:
            return {known.by_name[name]: [name] for name in known.new_names}
        if self.label_text is None:
            raise OptionError("label_texts: this model has no texts of its labels; train it with --label-text")
        if known.names is None:
            raise OptionError("label_texts: the labels of this model have no names to find their texts by")
        names = [name for name in known.names if name != FORGOTTEN_NAME]
        matched = match_labels(as_label_texts(label_texts), names, len(names))
        by_name = dict(zip(matched.names or (), matched.texts, strict=True))
        for name in (matched.names or [])[len(names) :]:
            known.add_name(name)
        return {known.by_name[name]: by_name[name] for name in known.new_names}

    def _rows(self, inputs: Any) -> CsrArray:
        examples = self.examples(inputs)
        assert isinstance(examples, SparseExamples)
        return normalise_rows(examples.X)

    def _find_rows(self, inputs: Any) -> IntArray:
        """The training rows with the same features as any of the inputs; a DataError names an input without one."""
        X, stored = stored_precision(self._rows(inputs)), self._updatable().training_rows()[0]
        numbers: dict[bytes, list[int]] = {}
        for i in range(stored.shape[0]):
            numbers.setdefault(_row_bytes(stored, i), []).append(i)
        found = [numbers.get(_row_bytes(X, i), []) for i in range(X.shape[0])]
        missing = [i for i, rows in enumerate(found) if not rows]
        if missing:
            raise DataError(
                f"forget: {len(missing)} of {len(found)} inputs are no training rows of this model, such as input "
                f"{missing[0]}; give them as they were in training"
            )
        return np.unique(np.concatenate([np.array(rows, np.int64) for rows in found] or [np.empty(0, np.int64)]))

    def _learned(
        self,
        network: RidgeKnn,
        names: Sequence[str] | None,
        changes: dict[str, int],
        refit: bool,
        on_progress: ProgressCallback | None,
        texts: Mapping[int, Sequence[str]] | None = None,
    ) -> Self:
        """The model with a network that has learned on; `texts`: new texts of labels, empty for none."""
        if refit:
            network = refit_trees(network, on_progress)
        Y = network.training_rows()[1]
        allowed = np.ones(network.n_labels, bool)
        if self.allowed is not None:
            allowed[: self.n_labels] = self.allowed
            allowed[self.network.free_labels()] = True  # for a new label
        allowed[network.free_labels()] = False
        before = self.metadata.get("learning on")
        before = before if isinstance(before, dict) else {}
        total = {name: n + _count(before.get(name)) for name, n in changes.items()}
        model: Any = type(self)  # `Model`, which is this class and others
        learned: Self = model(
            network,
            HolographicHead(None, network.n_labels, network.out_features, network.codebook_name, seed=network.seed),
            metrics.frequencies(Y),
            normalise=self.normalise,
            tfidf=self.tfidf,
            encoder=self.encoder,
            label_names=names,
            metadata={**self.metadata, "rows": network.n_training_rows, "learning on": {**before, **total}},
            calibration=self.calibration,
            allowed=None if allowed.all() else allowed,
        ).eval()
        if self.label_text is not None:
            learned.label_text = self.label_text
        if self.label_text is not None and texts:
            learned.label_text = self.label_text.with_texts(texts, learned.suggest, network.n_labels)
        return learned


class _LabelIds:
    """The ids of labels by name or id; a name that is new gets the next one.

    free   ids that new labels get first
    """

    def __init__(self, n_labels: int, names: list[str] | None, free: Sequence[int]) -> None:
        self.names, self.free, self.n_labels, self.n_new = names, list(free), n_labels, 0
        self.new_names: list[str] = []
        self.by_name = {} if names is None else {name: i for i, name in enumerate(names) if name != FORGOTTEN_NAME}

    def __len__(self) -> int:
        return self.n_labels

    def of(self, option: str, sets: LabelSets, n_rows: int, *, may_add: bool = True) -> list[list[int]]:
        """The ids of the labels of each row, in ascending order."""
        if isinstance(sets, str):
            raise OptionError(f"{option} has a list of labels for each row; got one text, {sets[:40]!r}")
        rows = [list(row) if not isinstance(row, str) else row for row in as_list(sets)]
        if len(rows) != n_rows:
            raise DataError(f"{option} has {len(rows)} rows, and the inputs have {n_rows}; give a list for each row")
        for row in rows:
            if isinstance(row, str):
                raise DataError(f"{option} has a list of labels for each row; got one text, {row[:40]!r}, for a row")
        if self.names is None:
            self._add_ids(option, [i for row in rows for i in row], may_add)
        elif may_add:
            for name in (name for row in rows for name in row if isinstance(name, str) and name not in self.by_name):
                self.add_name(name)
        return [sorted({self._id(option, label) for label in row}) for row in rows]

    def add_name(self, name: str) -> None:
        if name in self.by_name:
            return
        check_names([name])
        if name == FORGOTTEN_NAME:
            raise LabelError("labels: a label has an empty name; name it, or leave it out")
        assert self.names is not None
        self.n_new += 1
        self.new_names.append(name)
        if self.free:
            self.by_name[name] = self.free.pop(0)
            self.names[self.by_name[name]] = name
            return
        self.by_name[name] = self.n_labels
        self.names.append(name)
        self.n_labels += 1

    def _add_ids(self, option: str, ids: list[Any], may_add: bool) -> None:
        new = {int(i) for i in ids if isinstance(i, int | np.integer) and i >= self.n_labels}
        if new and may_add and max(new) < self.n_labels + len(new):
            self.n_labels, self.n_new = self.n_labels + len(new), self.n_new + len(new)
        elif new:
            raise LabelError(
                f"{option}: this model has the labels 0 to {self.n_labels - 1}; new ones get the ids from "
                f"{self.n_labels} on without a gap, but {min(new)} to {max(new)} came"
            )

    def _id(self, option: str, label: Any) -> int:
        if isinstance(label, str) and label in self.by_name:
            return self.by_name[label]
        return int(label_ids(option, [label], self.n_labels, self.names)[0])


def _row_numbers(rows: Iterable[int], n: int) -> IntArray:
    numbers = list(rows)
    for row in numbers:
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < n:
            raise DataError(f"forget: this model has the training rows 0 to {n - 1}; got {row!r:.40}")
    return np.unique(np.array(numbers, np.int64))


def _row_bytes(X: CsrArray, row: int) -> bytes:
    entries = slice(X.indptr[row], X.indptr[row + 1])
    return X.indices[entries].astype(np.int32).tobytes() + X.data[entries].astype(np.float16).tobytes()


def _count(value: Any) -> int:
    return value if type(value) is int else 0  # a file may hold anything
