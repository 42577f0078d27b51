"""Features of texts, for datasets that bring none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from holobind.data.dataset import Matrix, matrix
from holobind.errors import DataError


class Tfidf:
    """Sublinear tf-idf with L2 rows. Words are runs of letters and digits, at least two, in lower case; an underscore
    ends a word. `words` and `idf` are all of its state; words that it was not fitted on count for nothing."""

    def __init__(self, words: Sequence[str], idf: NDArray[np.float32]) -> None:
        if len(words) != len(idf) or len(set(words)) != len(words):
            raise DataError(
                f"tf-idf wants different words with one number each, got {len(words)} words and {len(idf)} numbers"
            )
        self.words, self.idf = list(words), np.asarray(idf, np.float32)
        self._vectorizer: Any = None

    @classmethod
    def fit(cls, texts: Sequence[str]) -> tuple["Tfidf", Matrix]:
        """Learn words and their weights, and the features of these texts with them."""
        vectorizer = _vectorizer()
        try:
            found = vectorizer.fit_transform(texts)
        except ValueError:  # no words at all
            return cls([], np.empty(0, np.float32)), _nothing(len(texts))
        fitted = cls(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_)
        fitted._vectorizer = vectorizer
        return fitted, _sorted(found)

    def transform(self, texts: Sequence[str]) -> Matrix:
        """Shapes: texts -> sparse (texts, words)"""
        if not self.words or not len(texts):
            return _nothing(len(texts), len(self.words))
        if self._vectorizer is None:
            self._vectorizer = _vectorizer(vocabulary={word: i for i, word in enumerate(self.words)})
            self._vectorizer.idf_ = self.idf
        return _sorted(self._vectorizer.transform(texts))


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\W_]{2,}", dtype=np.float32, **options)


def _sorted(found: Any) -> Matrix:
    rows = sparse.csr_array(found)
    rows.sort_indices()
    return matrix(rows.data, rows.indices, rows.indptr, rows.shape)


def _nothing(rows: int, columns: int = 0) -> Matrix:
    none = np.empty(0, np.float32)
    return matrix(none, none, np.zeros(rows + 1), (rows, columns))
