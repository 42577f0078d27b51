"""The forms of y in scikit-learn, converted to an indicator matrix and back.

"classes"   one class for each row: a vector of numbers, strings or booleans
"names"     a label set for each row: a list of lists, tuples or sets of strings or numbers
"matrix"    an indicator: an array, a table, or lists of equal length, of 0 and 1, with two columns or more
"sparse"    an indicator: any scipy sparse matrix
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from holobind._types import CsrArray
from holobind.data.csr import canonical_csr, checked_csr, from_arrays, from_label_ids
from holobind.data.label_texts import LabelTexts, match_labels
from holobind.errors import DataError, LabelError

Kind = Literal["classes", "names", "matrix", "sparse"]
INT64 = np.dtype(np.int64)
SET_TYPES = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True, eq=False)
class Targets:
    """The kind of y, and its labels.

    classes   (L) in ascending order; 0 to L - 1 for the columns of an indicator
    dtype     of a dense indicator
    """

    kind: Kind
    classes: NDArray[Any]
    dtype: np.dtype[Any] = INT64

    @classmethod
    def of(cls, y: Any, classes: Iterable[Any] | None = None) -> "Targets":
        """The kind and the labels of y; `classes` may name labels that do not occur in it."""
        kind, y = _read(y)
        if kind in ("matrix", "sparse"):
            return cls(kind, np.arange(y.shape[1]), y.dtype)
        if classes is None:
            classes = y if kind == "classes" else (label for row in y for label in row)
        return cls(kind, sorted_labels(classes))

    def grown_by(self, y: Any) -> "Targets":
        """With the labels of y that are new after the others, in the order of rows; an indicator has no new labels."""
        kind, rows = _read(y)
        if kind != self.kind or not self.named:
            return self
        known = dict.fromkeys(self.classes.tolist())
        n_known = len(known)
        labels = rows.tolist() if kind == "classes" else [label for row in rows for label in row]
        new = list(dict.fromkeys([*known, *labels]))[n_known:]
        return self if not new else replace(self, classes=_joined(self.classes, new))

    def ordered_as(self, label_names: list[str] | None) -> "Targets":
        """The same labels in the order of their names; a name that is unknown stands for itself."""
        if not self.named or label_names is None or label_names == self.label_names:
            return self
        classes = dict(zip(self.label_names or (), self.classes.tolist(), strict=True))
        return replace(self, classes=np.array([classes.get(name, name) for name in label_names], self.classes.dtype))

    def known(self, y: Any) -> tuple[Any, int]:
        """y without the labels that are not among `classes`, and how many labels that leaves out.

        A row of the kind "names" keeps its other labels. Other kinds are given back as they are.
        """
        kind, rows = _read(y)
        if kind != self.kind or not self.named:
            return y, 0
        known = set(self.classes.tolist())
        if kind == "classes":
            return y, int(sum(label not in known for label in rows.tolist()))
        kept = [tuple(label for label in row if label in known) for row in rows]
        return kept, sum(map(len, rows)) - sum(map(len, kept))

    def to_csr(self, y: Any) -> CsrArray:
        """y as a matrix of ones.  Shapes: -> sparse (rows, L) int32"""
        kind, y = _read(y)
        indicators = ("matrix", "sparse")
        if kind != self.kind and not (kind in indicators and self.kind in indicators):
            raise DataError(f"y is of the kind {kind!r}; the first one was of the kind {self.kind!r}")
        if kind in indicators:
            if y.shape[1] != len(self.classes):
                raise DataError(f"y has {y.shape[1]} labels; there were {len(self.classes)}")
            rows = canonical_csr(checked_csr(y if sparse.issparse(y) else sparse.csr_array(y), "y"))
            return from_arrays(np.ones(rows.nnz, np.int32), rows.indices, rows.indptr, rows.shape)
        id_of = {label: i for i, label in enumerate(self.classes.tolist())}
        try:
            if kind == "classes":
                labels, places = np.unique(y, return_inverse=True)
                ids = np.array([id_of[label] for label in labels.tolist()], np.int64)[places]
                return from_label_ids(ids[:, None].tolist(), len(id_of))
            return from_label_ids([sorted({id_of[label] for label in row}) for row in y], len(id_of))
        except KeyError as error:
            raise LabelError(f"y has a label {error.args[0]!r:.60} that is not among the {len(id_of)} known") from error
        except TypeError as error:
            raise DataError(f"labels must be all strings or all numbers ({error})") from error

    def from_csr(self, present: CsrArray) -> Any:
        """A matrix of ones as a y of this kind."""
        if self.kind == "sparse":
            return present
        if self.kind == "matrix":
            return present.toarray().astype(self.dtype)
        if self.kind == "classes":
            return self.classes[present.indices]
        names = self.classes[present.indices].tolist()
        return [tuple(names[a:b]) for a, b in zip(present.indptr[:-1], present.indptr[1:], strict=True)]

    # In a header

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "dtype": (self.classes if self.named else self).dtype.str}

    @property
    def named(self) -> bool:
        return self.kind in ("classes", "names")

    @property
    def label_names(self) -> list[str] | None:
        return [str(name) for name in self.classes] if self.named else None

    @classmethod
    def from_json(cls, described: Any, label_names: list[str] | None, n_labels: int) -> "Targets":
        """The inverse of `as_json`. Without it: sets of names where there are names, otherwise sparse indicators."""
        described = described if isinstance(described, dict) else {}
        kind = described.get("kind", "names" if label_names else "sparse")
        try:
            dtype = np.dtype(str(described.get("dtype", "O" if label_names else "<i8")))
            if kind not in get_args(Kind) or dtype.kind not in "biufUO":
                raise DataError(f"there is no y of kind {kind!r} with {dtype}")
            if kind in ("matrix", "sparse"):
                return cls(kind, np.arange(n_labels), dtype)
            names = np.array(label_names or [str(i) for i in range(n_labels)], dtype=object)
            if dtype.kind == "b":
                return cls(kind, names == "True")
            return cls(kind, names.astype(str if dtype.kind == "U" else dtype))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise DataError(f"its labels cannot be read: {error}") from error


def with_label_texts(targets: Targets, y: Any, texts: LabelTexts) -> tuple[Targets, list[list[str]]]:
    """Targets that have the labels of texts, too, and the texts of each label."""
    n_labels = len(targets.classes)
    matched = match_labels(texts, [str(label) for label in targets.classes], n_labels)
    added = (matched.names or [])[n_labels:]
    if not added:
        return targets, matched.texts
    if not targets.named:
        raise DataError(
            f"y has a column for each of {n_labels} labels; give it one for each label of label_texts, which has "
            f"{len(added)} more, such as {added[0][:40]!r}"
        )
    convert: Any = int if targets.classes.dtype.kind in "iu" else str
    try:
        classes = [*targets.classes.tolist(), *map(convert, added)]
    except ValueError as error:
        raise DataError(f"labels of y are numbers, and label_texts has {added[0][:40]!r}") from error
    wider = Targets.of(y, classes)
    return wider, match_labels(texts, wider.label_names, len(classes)).texts


def top_k_matrix(ids: NDArray[np.int64], n_labels: int) -> CsrArray:
    """Label ids of every row, as an indicator matrix; -1 is no label.  Shapes: (rows, k) -> sparse (rows, L)"""
    return from_label_ids([row[row >= 0].tolist() for row in np.sort(ids, axis=1)], n_labels)


def _read(y: Any) -> tuple[Kind, Any]:
    """The kind of y, and y as a sparse matrix, an array, or a list of collections."""
    if y is None:
        raise DataError("HolographicClassifier requires y to be passed, but the target y is None")
    if sparse.issparse(y):
        if getattr(y, "ndim", 0) != 2:
            raise DataError(f"a sparse y is (rows, labels); got {type(y).__name__} of one")
        return "sparse", y
    if isinstance(y, str) or not (hasattr(y, "__len__") or hasattr(y, "__array__")):
        raise DataError(f"y must be a vector, a matrix or a list of label sets; got {type(y).__name__}")
    sets = _sets(y)
    if sets is not None:
        return "names", sets
    try:
        dense = np.asarray(y)
    except ValueError as error:
        raise DataError(
            "y must be a vector, a matrix or a list of label sets; its rows are of several kinds"
        ) from error
    if dense.ndim == 2 and dense.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: it is read as one class a row.",
            DataConversionWarning,
            stacklevel=4,
        )
        dense = dense.ravel()
    if dense.ndim not in (1, 2):
        raise DataError(f"y must be a vector or a matrix; got shape {dense.shape}")
    if dense.dtype.kind == "f" or dense.dtype == object:
        assert_all_finite(dense, input_name="y")
    if dense.ndim == 1:
        try:
            check_classification_targets(dense)
        except TypeError as error:
            raise DataError(f"classes must be all strings or all numbers ({error})") from error
        return "classes", dense
    if dense.dtype.kind not in "biuf" or not ((dense == 0) | (dense == 1)).all():
        raise DataError("a y of two dimensions is an indicator of 0 and 1; for several classes a row, pass label sets")
    return "matrix", dense


def _sets(y: Any) -> list[Any] | None:
    """y as a list of collections, if it is one and no indicator."""
    if isinstance(y, np.ndarray) and (y.ndim != 1 or y.dtype != object):
        return None
    rows = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(rows, list | tuple) or not any(isinstance(row, SET_TYPES) for row in rows):
        return None
    for i, row in enumerate(rows):
        if not isinstance(row, SET_TYPES):
            raise DataError(f"y holds label sets, but row {i} is {row!r:.40}; a row with one label is a set of one")
    if any(isinstance(row, set | frozenset) for row in rows) or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return list(rows)
    flat = np.asarray(rows)
    return None if flat.dtype.kind in "biuf" and ((flat == 0) | (flat == 1)).all() else list(rows)


def sorted_labels(labels: Iterable[Any]) -> NDArray[Any]:
    """Labels in ascending order; the strings of sets stay Python objects, whose length has no bound."""
    given = labels if isinstance(labels, np.ndarray) else list(labels)
    try:
        if isinstance(given, np.ndarray):
            return np.unique(given)
        kept = sorted(set(given))
        if all(isinstance(label, str) for label in kept):
            return np.array(kept, dtype=object)
        if all(isinstance(label, int | np.integer) for label in kept):
            return np.array(kept)
    except TypeError as error:
        raise DataError(f"labels of sets must be all strings or all whole numbers ({error})") from error
    raise DataError(f"labels of sets must be all strings or all whole numbers; got {kept[0]!r:.40}")


def _joined(classes: NDArray[Any], new: list[Any]) -> NDArray[Any]:
    """Classes and new ones after them; they must be of one kind, strings or numbers."""
    sorted_labels([*classes[:1].tolist(), *new])  # raises an error where they cannot be compared
    if classes.dtype == object:
        joined = np.empty(len(classes) + len(new), object)
        joined[:] = [*classes.tolist(), *new]
        return joined
    return np.concatenate([classes, np.array(new)])
