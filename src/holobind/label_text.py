"""Labels by their text: names, synonyms and descriptions raise the scores of labels that have few or no training rows.

The texts a_i of a label, of which a_1 is its name, are compared with a document x in three ways:

    match(x, l)    max_i (cos(x, a_i) + cover(x, a_i)) / 2, of tf-idf vectors of words and prefixes. cover(x, a) is the
                   fraction of |a|^2 on features that x has: 1 if the document contains the whole text
    related(x, l)  cos(s(x), s(a_1)), where s are the scores of the 30 best labels: those of the document, and those of
                   the name, which the model reads as if it were a document. So a label without rows can be found
                   whose words the document does not have
    similar(x, l)  max_i cos(e(x), e(a_i)), of embeddings e of a sentence encoder, where the model has one

What they add to scores is in `label_text_weights`: the less, the more training rows a label has, and so that labels
without rows come after the five best others, unless the match is strong.

Only the ADDED_LABELS largest values of a row are added, and they are not negative, so that the top k stays exact
(`heads.added_scores`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor

from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback, RowIndex
from holobind.codebooks import Codebook
from holobind.data.csr import from_arrays, normalise_rows, take_rows, widen
from holobind.data.tfidf import Tfidf, all_features
from holobind.errors import OptionError
from holobind.heads.added_scores import AddedScores, Scorer
from holobind.label_text_weights import TextWeights

if TYPE_CHECKING:
    from holobind.data.encoder_features import EncoderFeatures

N_BEST_LABELS = 30  # of a document or a name, whose scores are compared
ADDED_LABELS = 64  # of a row
MAX_CHUNK_BYTES = 1 << 25  # of the text scores of all labels for some rows
MAX_SAMPLE = 50_000  # training texts that document frequencies are counted in

Suggest = Callable[[Sequence[str]], tuple[FloatArray, IntArray]]  # the scores and ids of the best labels of texts


@dataclass(frozen=True, eq=False)
class TextRows:
    """Documents as they are compared with label texts: tf-idf, and embeddings where the model has an encoder.

    Shapes: sparse (n, p), (n, dim)
    """

    words: CsrArray
    embeddings: FloatArray | None = None

    def empty(self) -> NDArray[np.bool_]:
        """Which documents have no word of any label text.  Shapes: -> (n)"""
        return np.diff(self.words.indptr) == 0

    def take(self, rows: RowIndex) -> "TextRows":
        return TextRows(take_rows(self.words, rows), None if self.embeddings is None else self.embeddings[rows])


class LabelText:
    """The texts of labels as tf-idf vectors, by which documents find labels.

    tfidf        words and prefixes of the texts, with their idf among documents and label texts
    index        (texts, p) a row of length 1 for each text; the texts of a label are consecutive, its name is first
    owners       (texts) the label of each text; each label from 0 on has at least one
    weights      how much the texts count
    suggestions  (labels, L) a row of length 1 for each label without training rows: scores of the best labels of its
                 name, without the label itself (`suggested`); other labels have none
    embeddings   (texts, dim) float16 of length 1, or None
    encoder      of the embeddings
    """

    def __init__(
        self,
        tfidf: Tfidf,
        index: CsrArray,
        owners: IntArray,
        weights: TextWeights,
        suggestions: CsrArray,
        embeddings: NDArray[np.float16] | None = None,
        encoder: "EncoderFeatures | None" = None,
    ) -> None:
        if not len(owners) or owners[0] != 0 or (np.diff(owners) < 0).any() or (np.diff(owners) > 1).any():
            raise OptionError("label text: owners must ascend from 0, with each label at least once")
        if index.shape != (len(owners), len(tfidf.words)):
            raise OptionError(f"label text: an index of shape {index.shape} for {len(owners)} texts")
        if suggestions.shape[0] != owners[-1] + 1 or suggestions.shape[1] < suggestions.shape[0]:
            raise OptionError(f"label text: suggestions of shape {suggestions.shape} for {owners[-1] + 1} labels")
        if (embeddings is None) != (encoder is None) or bool(weights.embedding_weight) != (encoder is not None):
            raise OptionError("label text: embedding_weight, embeddings and their encoder belong together")
        if embeddings is not None and encoder is not None and embeddings.shape != (len(owners), encoder.dim):
            raise OptionError(f"label text: embeddings of shape {embeddings.shape} for {len(owners)} texts")
        self.tfidf, self.index, self.owners, self.weights = tfidf, index, owners, weights
        self.suggestions, self.embeddings, self.encoder = suggestions, embeddings, encoder
        self._first = np.flatnonzero(np.diff(owners, prepend=-1))
        self._prepared: _Tables | None = None

    @classmethod
    def fit(cls, texts: Sequence[Sequence[str]], documents: Sequence[str]) -> "LabelText":
        """Index the texts of each label, with document frequencies of label texts and documents; a label may have none.

        There are no suggestions for names yet.

        idf[f] = 1 + ln((1 + texts) / (1 + texts with f))
        """
        flat = [text for of_label in texts for text in (of_label or ("",))]
        owners = np.repeat(np.arange(len(texts)), [max(len(of_label), 1) for of_label in texts])
        words = all_features(flat, "prefix")
        plain = Tfidf(words, np.ones(len(words), np.float32), "prefix")
        counts = np.zeros(len(words), np.int64)
        sample = documents[:: -(-len(documents) // MAX_SAMPLE)] if len(documents) else []
        for some in (flat, sample):
            counts += np.bincount(plain.transform(some).indices, minlength=len(words))
        idf = 1 + np.log((1 + len(flat) + len(sample)) / (1 + counts))
        tfidf = Tfidf(words, idf.astype(np.float32), "prefix")
        return cls(tfidf, _stored(tfidf.transform(flat)), owners, TextWeights(), _no_suggestions(len(texts)))

    def with_weights(
        self, weights: TextWeights, embeddings: FloatArray | None = None, encoder: "EncoderFeatures | None" = None
    ) -> "LabelText":
        if embeddings is None or not weights.embedding_weight:
            return LabelText(self.tfidf, self.index, self.owners, weights, self.suggestions)
        vectors = embeddings.astype(np.float16)
        return LabelText(self.tfidf, self.index, self.owners, weights, self.suggestions, vectors, encoder)

    def with_suggestions(self, suggestions: CsrArray) -> "LabelText":
        return LabelText(self.tfidf, self.index, self.owners, self.weights, suggestions, self.embeddings, self.encoder)

    def with_texts(self, texts: Mapping[int, Sequence[str]], suggest: Suggest, n_labels: int) -> "LabelText":
        """With other texts of some labels, which may be new ones; none for an empty list.

        The other texts keep their vectors. A word that no text had gets the largest idf.

        suggest    the model's, for the names of these labels
        n_labels   of the model
        """
        last = max(self.n_labels - 1, *texts) if texts else self.n_labels - 1
        changed = {label: texts.get(label) or ("",) for label in {*texts, *range(self.n_labels, last + 1)}}
        flat = [text for of_label in changed.values() for text in of_label]
        known = {*self.tfidf.words}
        words = [word for word in all_features(flat, "prefix") if word not in known]
        idf = np.append(self.tfidf.idf, np.full(len(words), self.tfidf.idf.max(initial=1), np.float32))
        tfidf = Tfidf([*self.tfidf.words, *words], idf, "prefix")
        stays = np.flatnonzero(~np.isin(self.owners, list(changed)))
        owners = np.append(self.owners[stays], np.repeat(list(changed), [len(each) for each in changed.values()]))
        order = np.argsort(owners, kind="stable")
        index = csr_array(vstack([widen(self.index[stays], len(tfidf.words)), _stored(tfidf.transform(flat))]))[order]
        embeddings = None
        if self.embeddings is not None and self.encoder is not None:
            new = self.encoder.embed(flat).astype(np.float16)
            embeddings = np.concatenate([self.embeddings[stays], new])[order]
        suggestions = _without_labels(self.suggestions, list(changed), (last + 1, n_labels))
        names = {label: own[0] for label, own in changed.items()}
        suggestions = csr_array(suggestions + suggested(suggest, names, suggestions.shape))
        return LabelText(tfidf, index, owners[order], self.weights, suggestions, embeddings, self.encoder)

    @property
    def n_labels(self) -> int:
        """The number of labels with texts: ids from 0 on."""
        return len(self._first)

    @property
    def n_texts(self) -> int:
        return len(self.owners)

    def rows(
        self,
        texts: Sequence[str],
        embeddings: FloatArray | None = None,
        *,
        cache: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> TextRows:
        """Documents as `added` takes them.

        embeddings   of the documents by the same encoder, where they are known
        """
        if self.encoder is None:
            return TextRows(self.tfidf.transform(texts))
        if embeddings is None:
            embeddings = self.encoder.embed(texts, cache=cache, on_progress=on_progress)
        return TextRows(self.tfidf.transform(texts), embeddings)

    def add_to(self, scorer: Scorer, h: Tensor, rows: TextRows, counts: IntArray) -> AddedScores:
        """A head whose scores have what the label texts add for some documents.

        scorer   the head, with what label trees add
        h        the network's outputs for the documents
        counts   training rows of each label

        Shapes: (n, in), (L)
        """
        best = scorer.top_k(h, min(N_BEST_LABELS, scorer.n_labels))
        values, labels = self.added(rows, best[0].float().cpu().numpy(), best[1].cpu().numpy(), counts, scorer, h)
        return AddedScores(scorer, *(torch.from_numpy(array).to(h.device) for array in (values, labels)))

    def added(
        self,
        rows: TextRows,
        best_scores: FloatArray,
        best_labels: IntArray,
        counts: IntArray,
        scorer: Scorer | Codebook,
        h: Tensor,
    ) -> tuple[FloatArray, IntArray]:
        """What is added to the scores of some labels of each document, and these labels, -1 for none.

        best_scores, best_labels   of the documents, best first, without label texts

        Shapes: (n, 30), (n, 30), (L), h (n, in) -> (n, m), (n, m)
        """
        counts = counts[: self.n_labels]
        with_rows, without = np.flatnonzero(counts > 0), np.flatnonzero(counts == 0)
        n_learned, n_unseen = min(ADDED_LABELS, len(with_rows)), min(self.weights.zero_labels, len(without))
        start = min(ADDED_LABELS, self.n_labels)  # of labels without rows: the width does not depend on the counts
        values = np.zeros((rows.words.shape[0], start + self.weights.zero_labels), np.float32)
        labels = np.full(values.shape, -1, np.int64)
        for chunk, match, related, similar in self.text_scores(rows, best_scores, best_labels):
            best, own = best_scores[chunk, :1], own_scores(best_scores[chunk], best_labels[chunk], self.n_labels)
            of_learned = self.weights.learned(match, counts, own, best)
            learned = _largest(of_learned, with_rows, n_learned)
            raised = np.take_along_axis(of_learned, learned, 1)
            values[chunk, :n_learned], labels[chunk, :n_learned] = raised, np.where(raised > 0, learned, -1)
            if n_unseen:
                texts = self.weights.text_score(match, related, similar)
                unseen = _largest(texts, without, n_unseen)
                known = np.where(best_labels[chunk] < self.n_labels, best_labels[chunk], without[0])
                of_known = np.take_along_axis(of_learned, known, 1)
                fifth = _fifth(best_scores[chunk] + of_known, known, raised, learned)
                found = self.weights.unseen(np.take_along_axis(texts, unseen, 1), counts[unseen], best, fifth)
                at = slice(start, start + n_unseen)
                values[chunk, at], labels[chunk, at] = found, np.where(found > 0, unseen, -1)
        if n_unseen and len(values):  # the score of a label without rows is crosstalk, which its value replaces
            ids = torch.from_numpy(np.maximum(labels[:, start:], 0)).to(h.device)
            crosstalk = scorer.scores_of(h, ids).float().cpu().numpy()
            values[:, start:] = np.where(labels[:, start:] < 0, 0, values[:, start:] - crosstalk).clip(0)
        return values, labels

    def text_scores(self, rows: TextRows, best_scores: FloatArray, best_labels: IntArray) -> Any:
        """Yield (slice of documents, match, related, similar or None) of all labels, in chunks.

        Shapes: -> 3 x (c, L)
        """
        tables = self._tables()
        n = rows.words.shape[0]
        step = max(1, MAX_CHUNK_BYTES // (4 * self.n_texts))
        for start in range(0, n, step):
            chunk = slice(start, min(start + step, n))
            words = take_rows(rows.words, np.arange(chunk.start, chunk.stop))
            present = from_arrays(np.ones_like(words.data), words.indices, words.indptr, words.shape)
            match = self._of_labels((words @ tables.index + present @ tables.squares).toarray()) / np.float32(2)
            best = label_vectors(best_scores[chunk], best_labels[chunk], tables.suggestions.shape[0])
            related = (best @ tables.suggestions).toarray()
            similar = None
            if tables.embeddings is not None and rows.embeddings is not None:
                similar = self._of_labels(rows.embeddings[chunk].astype(np.float32) @ tables.embeddings)
            yield chunk, match.astype(np.float32, copy=False), related.astype(np.float32, copy=False), similar

    def explain(
        self, rows: TextRows, best_scores: FloatArray, best_labels: IntArray, label: int
    ) -> tuple[list[str], list[int]]:
        """The words that one document shares with a label's texts, and labels suggested for it and for the name.

        The labels that count most come first.

        Shapes: rows of one document, (1, 30), (1, 30)
        """
        texts = self.index[np.flatnonzero(self.owners == label)]
        shared = np.intersect1d(rows.words.indices, texts.indices)
        words = [self.tfidf.words[i] for i in shared if not self.tfidf.words[i].endswith("*")]
        words = words or sorted((self.tfidf.words[i] for i in shared), key=len)[-1:]
        row = self.suggestions[[label]] if label < self.n_labels else _no_suggestions(1)
        of_name = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        best = zip(best_labels[0].tolist(), best_scores[0].tolist(), strict=True)
        related = {other: score * of_name[other] for other, score in best if score > 0 and other in of_name}
        return words, sorted(related, key=related.__getitem__, reverse=True)

    def _of_labels(self, scores: FloatArray) -> FloatArray:
        """The largest score of each label's texts.  Shapes: (n, texts) -> (n, L)"""
        return scores if self.n_texts == self.n_labels else np.maximum.reduceat(scores, self._first, axis=1)

    def _tables(self) -> "_Tables":
        if self._prepared is None:
            squares = from_arrays(self.index.data**2, self.index.indices, self.index.indptr, self.index.shape)
            dense = None if self.embeddings is None else self.embeddings.T.astype(np.float32)
            by_feature = [csr_array(A.T) for A in (self.index, squares, self.suggestions)]
            self._prepared = _Tables(by_feature[0], by_feature[1], by_feature[2], dense)
        return self._prepared

    def prepare(self) -> None:
        """Build the tables of prediction, before several threads use them."""
        self._tables()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": None}


def _largest(values: FloatArray, columns: IntArray, m: int) -> IntArray:
    """The columns, of some, with the m largest values of each row.  Shapes: (n, L), (c) -> (n, m)"""
    found = torch.from_numpy(values)[:, torch.from_numpy(columns)].topk(m, dim=1).indices
    return np.asarray(columns[found.numpy()], np.int64)


def _fifth(best: FloatArray, labels: IntArray, raised: FloatArray, others: IntArray) -> FloatArray:
    """The fifth best score with label texts, of the best labels and of others that texts raise.

    The scores of the others without texts, which are low, are taken for 0: so the result is not too large.

    Shapes: (n, b), (n, b), (n, m), (n, m) -> (n, 1)
    """
    is_new = ~(others[:, :, None] == labels[:, None, :]).any(2)
    scores = np.hstack([best, np.where(is_new, raised, 0)])
    at = min(4, scores.shape[1] - 1)
    return np.asarray(-np.partition(-scores, at, axis=1)[:, at : at + 1])


def own_scores(best_scores: FloatArray, best_labels: IntArray, n_labels: int) -> FloatArray:
    """The scores of all labels, of which those that are not among the best are 0.  Shapes: (n, k), (n, k) -> (n, L)"""
    found = np.zeros((len(best_scores), max(n_labels, int(best_labels.max(initial=0)) + 1)), np.float32)
    np.put_along_axis(found, best_labels, best_scores.astype(np.float32), 1)
    return found[:, :n_labels]


def label_vectors(scores: FloatArray, labels: IntArray, n_labels: int) -> CsrArray:
    """Positive scores of some labels as vectors of length 1.  Shapes: (n, k), (n, k) -> sparse (n, n_labels)"""
    n, k = labels.shape
    kept = np.where(labels < n_labels, np.maximum(scores, 0), 0).astype(np.float32)
    ids = np.where(labels < n_labels, labels, 0)
    found: CsrArray = csr_array((kept.ravel(), ids.ravel(), np.arange(0, n * k + 1, k)), (n, n_labels))
    found.sum_duplicates()
    found.eliminate_zeros()
    return normalise_rows(found)


def suggested(suggest: Suggest, names: Mapping[int, str], shape: tuple[int, int]) -> CsrArray:
    """The suggestions for the names of some labels, by their ids, as `LabelText` has them.

    shape   of the result: labels with texts, and labels of the model
    """
    ids = np.array(sorted(names), np.int64)
    if not len(ids):
        return _no_suggestions(*shape)
    scores, labels = suggest([names[i] for i in ids.tolist()])
    vectors = _stored(label_vectors(np.where(labels == ids[:, None], 0, scores), labels, shape[1]))
    sizes = np.zeros(shape[0], np.int64)
    sizes[ids] = np.diff(vectors.indptr)
    return from_arrays(vectors.data, vectors.indices, np.append(0, np.cumsum(sizes)), shape)


def _no_suggestions(n_labels: int, n_columns: int | None = None) -> CsrArray:
    shape = (n_labels, n_labels if n_columns is None else n_columns)
    return from_arrays(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(n_labels + 1, np.int64), shape)


def _without_labels(suggestions: CsrArray, labels: Sequence[int], shape: tuple[int, int]) -> CsrArray:
    """Suggestions without the rows and columns of some labels, of a shape that may be larger."""
    row = np.repeat(np.arange(suggestions.shape[0]), np.diff(suggestions.indptr))
    kept = ~(np.isin(row, labels) | np.isin(suggestions.indices, labels))
    sizes = np.bincount(row[kept], minlength=shape[0])
    return from_arrays(suggestions.data[kept], suggestions.indices[kept], np.append(0, np.cumsum(sizes)), shape)


def _stored(index: CsrArray) -> CsrArray:
    """Vectors as they are in a file, in 16 bits."""
    return from_arrays(index.data.astype(np.float16).astype(np.float32), index.indices, index.indptr, index.shape)


@dataclass(frozen=True, eq=False)
class _Tables:
    """The index by feature, its squares, the suggestions by suggested label, embeddings by dimension."""

    index: CsrArray
    squares: CsrArray
    suggestions: CsrArray
    embeddings: FloatArray | None
