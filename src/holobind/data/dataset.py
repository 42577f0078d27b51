"""The types Split and Dataset: sparse features and sparse labels for training and for testing, and their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holobind._checks import check_names
from holobind._types import CsrArray
from holobind.data.csr import checked_csr
from holobind.errors import DataError

if TYPE_CHECKING:
    from holobind.data.tables import Layout
    from holobind.data.tfidf import Tfidf


@dataclass(frozen=True, eq=False)
class Split:
    """The points of one split (train or test).

    X      (points, features)  float32 CSR, canonical
    Y      (points, labels)    int32 CSR of ones, canonical
    texts  one document per point, or None; a list, or `MappedTexts`
    """

    X: CsrArray
    Y: CsrArray
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(f"the features have {self.X.shape[0]} rows and the labels {self.Y.shape[0]}")
        if self.texts is not None and len(self.texts) != self.X.shape[0]:
            raise DataError(f"the features have {self.X.shape[0]} rows and there are {len(self.texts)} texts")

    def checked(self) -> "Split":
        """The same split with its matrices checked by `checked_csr`; a caller may have built them of any arrays."""
        return Split(checked_csr(self.X, "X"), checked_csr(self.Y, "Y"), self.texts)

    def __len__(self) -> int:
        return int(self.X.shape[0])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split, an optional test split, and the names of labels and features where they are known.

    tfidf         the transformation that made X from the texts; None if the data came with features
    layout        which fields of a table the texts and labels come from; None if the data is no table
    description   how a table was read, in one line
    """

    train: Split
    test: Split | None = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    name: str = ""
    tfidf: "Tfidf | None" = None
    layout: "Layout | None" = None
    description: str = ""

    def __post_init__(self) -> None:
        for split in self.splits.values():
            if (split.X.shape[1], split.Y.shape[1]) != (self.n_features, self.n_labels):
                raise DataError(
                    f"train has {self.n_features} features and {self.n_labels} labels, "
                    f"test has {split.X.shape[1]} and {split.Y.shape[1]}"
                )
        for what, names, n in (
            ("label", self.label_names, self.n_labels),
            ("feature", self.feature_names, self.n_features),
        ):
            if names is not None and len(names) != n:
                raise DataError(f"there are {len(names)} {what} names for {n} {what}s")
            check_names(names or ())

    @property
    def n_features(self) -> int:
        return int(self.train.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.train.Y.shape[1])

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name: "train", and "test" if there is one."""
        return {"train": self.train} if self.test is None else {"train": self.train, "test": self.test}

    @property
    def texts(self) -> dict[str, Sequence[str]] | None:
        """The documents of each split by its name; None unless every split has documents."""
        texts = {name: split.texts for name, split in self.splits.items() if split.texts is not None}
        return texts if len(texts) == len(self.splits) else None
