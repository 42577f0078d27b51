"""What a dataset is: sparse features and sparse labels for training and for testing, and their names."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holobind._types import CsrArray
from holobind.errors import DataError

if TYPE_CHECKING:
    from holobind.data.tfidf import Tfidf

# Its numbers are float32 (features) or int32 (labels); scipy's own type parameters are not settled yet.


@dataclass(frozen=True, eq=False)
class Split:
    """The points of one split.

    X      (points, features)  float32 CSR, ids ascending
    Y      (points, labels)    int32 CSR of ones, ids ascending
    texts  one document a point, or None
    """

    X: CsrArray
    Y: CsrArray
    texts: list[str] | None = None

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(f"the features have {self.X.shape[0]} rows and the labels {self.Y.shape[0]}")
        if self.texts is not None and len(self.texts) != self.X.shape[0]:
            raise DataError(f"the features have {self.X.shape[0]} rows and there are {len(self.texts)} texts")

    def __len__(self) -> int:
        return int(self.X.shape[0])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training part, a test part where there is one, and the names of labels and features where they are known.

    tfidf   how the features were made of the texts, if the data brought none
    """

    train: Split
    test: Split | None = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    name: str = ""
    tfidf: "Tfidf | None" = None

    def __post_init__(self) -> None:
        for part in self.splits.values():
            if (part.X.shape[1], part.Y.shape[1]) != (self.n_features, self.n_labels):
                raise DataError(
                    f"train has {self.n_features} features and {self.n_labels} labels, "
                    f"test has {part.X.shape[1]} and {part.Y.shape[1]}"
                )
        for what, names, n in (
            ("label", self.label_names, self.n_labels),
            ("feature", self.feature_names, self.n_features),
        ):
            if names is not None and len(names) != n:
                raise DataError(f"there are {len(names)} {what} names for {n} {what}s")

    @property
    def n_features(self) -> int:
        return int(self.train.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.train.Y.shape[1])

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train} if self.test is None else {"train": self.train, "test": self.test}

    @property
    def texts(self) -> dict[str, list[str]] | None:
        """The documents by part, or None unless every part has them."""
        texts = {name: part.texts for name, part in self.splits.items() if part.texts is not None}
        return texts if len(texts) == len(self.splits) else None
