"""Label texts in a model file: their tensors, and the checks of tensors that came from a file."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind import _storage as storage
from holobind._types import CsrArray
from holobind.data.csr import checked_csr, from_arrays
from holobind.data.encoder_features import EncoderFeatures
from holobind.data.tfidf import Tfidf
from holobind.errors import FileError
from holobind.label_text import LabelText
from holobind.label_text_weights import TextWeights

PREFIX = "label_text."
COMPRESSED = tuple(f"{PREFIX}{name}" for name in ("text_counts", "offsets", "ids", "values"))
COMPRESSED += tuple(f"{PREFIX}suggestions.{name}" for name in ("offsets", "ids", "values"))
MAX_VALUE = 1.01  # of a vector of length 1, rounded to float16


def pack(label_text: LabelText) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The entry of the header, and the tensors."""
    index, suggestions = label_text.index, label_text.suggestions
    tensors = {
        "words": storage.pack_lines(label_text.tfidf.words),
        "idf": torch.from_numpy(label_text.tfidf.idf),
        "text_counts": torch.from_numpy(np.bincount(label_text.owners).astype(np.int32)),
        "offsets": torch.from_numpy(index.indptr.astype(np.int64)),
        "ids": torch.from_numpy(index.indices.astype(np.int32)),
        "values": torch.from_numpy(index.data.astype(np.float16)),
        "suggestions.offsets": torch.from_numpy(suggestions.indptr.astype(np.int64)),
        "suggestions.ids": torch.from_numpy(suggestions.indices.astype(np.int32)),
        "suggestions.values": torch.from_numpy(suggestions.data.astype(np.float16)),
    }
    header: dict[str, Any] = {"weights": label_text.weights.as_json()}
    if label_text.embeddings is not None and label_text.encoder is not None:
        tensors["embeddings"] = torch.from_numpy(label_text.embeddings)
        header["encoder"] = label_text.encoder.config()
    return header, {PREFIX + name: tensor for name, tensor in tensors.items()}


def take(header: Any, tensors: dict[str, Tensor], n_labels: int) -> LabelText:
    """The label texts of a file, whose tensors are taken out of `tensors`. What a file has may be anything."""
    idf = _take(tensors, "idf", torch.float32)
    words = storage.unpack_lines(_take(tensors, "words", torch.uint8), len(idf))
    if words is None or not bool((idf >= 0).all()):
        raise FileError("its label_text.words are damaged, or not as many as their idf, which is 0 or larger")
    counts = _take(tensors, "text_counts", torch.int32)
    index = _take_rows(tensors, "", len(words))
    n_texts = index.shape[0]
    if len(counts) > n_labels or int(counts.min()) < 1 or int(counts.max()) > n_texts or int(counts.sum()) != n_texts:
        raise FileError(f"its label_text.text_counts do not divide {n_texts} texts among {n_labels} labels")
    suggestions = _take_rows(tensors, "suggestions.", n_labels)
    if suggestions.shape[0] != len(counts):
        raise FileError(f"its label_text.suggestions are {suggestions.shape[0]} for {len(counts)} labels")
    owners = np.repeat(np.arange(len(counts)), counts.numpy())
    embeddings, encoder = tensors.pop(f"{PREFIX}embeddings", None), None
    if embeddings is not None:
        if embeddings.dtype != torch.float16 or not storage.is_finite(embeddings):
            raise FileError("its label_text.embeddings are not finite numbers in float16")
        encoder = EncoderFeatures(**header["encoder"])
    vectors = None if embeddings is None else embeddings.numpy()
    tfidf = Tfidf(words, idf.numpy(), "prefix")
    return LabelText(tfidf, index, owners, TextWeights(**header["weights"]), suggestions, vectors, encoder)


def _take_rows(tensors: dict[str, Tensor], prefix: str, n_columns: int) -> CsrArray:
    """Sparse rows of length 1, of positive numbers."""
    offsets = _take(tensors, f"{prefix}offsets", torch.int64)
    ids, values = (
        _take(tensors, f"{prefix}{name}", dtype, may_be_empty=True)
        for name, dtype in (("ids", torch.int32), ("values", torch.float16))
    )
    if len(ids) != len(values) or not bool(((values >= 0) & (values <= MAX_VALUE)).all()):
        raise FileError(f"its label_text.{prefix}values are not the positive elements of vectors of length 1")
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((offsets[1:] < offsets[:-1]).any()):
        raise FileError(f"its label_text.{prefix}offsets do not ascend from 0 to {len(ids)}")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < n_columns:
        raise FileError(f"its label_text.{prefix}ids are not from 0 to {n_columns - 1}")
    arrays = values.float().numpy(), ids.numpy(), offsets.numpy()
    return checked_csr(from_arrays(*arrays, (len(offsets) - 1, n_columns), canonical=False), "label_text")


def _take(tensors: dict[str, Tensor], name: str, dtype: torch.dtype, *, may_be_empty: bool = False) -> Tensor:
    tensor = tensors.pop(PREFIX + name)
    if tensor.dtype != dtype or tensor.ndim != 1 or not (len(tensor) or may_be_empty):
        raise FileError(f"its label_text.{name} has {tensor.dtype} of shape {tuple(tensor.shape)}")
    return storage.finite_numbers(f"label_text.{name}", tensor) if dtype.is_floating_point else tensor
