"""Label texts in a model file: their tensors, and the checks of tensors that came from a file."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind import _storage as storage
from holobind.data.csr import checked_csr, from_arrays
from holobind.data.encoder_features import EncoderFeatures
from holobind.data.tfidf import Tfidf
from holobind.errors import FileError
from holobind.label_text import LabelText
from holobind.label_text_weights import TextWeights

PREFIX = "label_text."
COMPRESSED = tuple(f"{PREFIX}{name}" for name in ("text_counts", "offsets", "ids", "values"))
MAX_VALUE = 1.01  # of a vector of length 1, rounded to float16


def pack(label_text: LabelText) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The entry of the header, and the tensors."""
    index = label_text.index
    tensors = {
        "words": storage.pack_lines(label_text.tfidf.words),
        "idf": torch.from_numpy(label_text.tfidf.idf),
        "text_counts": torch.from_numpy(np.bincount(label_text.owners).astype(np.int32)),
        "offsets": torch.from_numpy(index.indptr.astype(np.int64)),
        "ids": torch.from_numpy(index.indices.astype(np.int32)),
        "values": torch.from_numpy(index.data.astype(np.float16)),
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
    counts, offsets = (_take(tensors, *kind) for kind in (("text_counts", torch.int32), ("offsets", torch.int64)))
    ids, values = (_take(tensors, *kind) for kind in (("ids", torch.int32), ("values", torch.float16)))
    n_texts = len(offsets) - 1
    if len(counts) > n_labels or int(counts.min()) < 1 or int(counts.max()) > n_texts or int(counts.sum()) != n_texts:
        raise FileError(f"its label_text.text_counts do not divide {n_texts} texts among {n_labels} labels")
    if len(ids) != len(values) or not bool(((values >= 0) & (values <= MAX_VALUE)).all()):
        raise FileError("its label_text.values are not the positive elements of vectors of length 1")
    arrays = values.float().numpy(), ids.numpy(), offsets.numpy()
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((offsets[1:] < offsets[:-1]).any()):
        raise FileError(f"its label_text.offsets do not ascend from 0 to {len(ids)}")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(words):
        raise FileError(f"its label_text.ids are not from 0 to {len(words) - 1}")
    index = checked_csr(from_arrays(*arrays, (n_texts, len(words)), canonical=False), "label_text")
    owners = np.repeat(np.arange(len(counts)), counts.numpy())
    embeddings, encoder = tensors.pop(f"{PREFIX}embeddings", None), None
    if embeddings is not None:
        if embeddings.dtype != torch.float16 or not storage.is_finite(embeddings):
            raise FileError("its label_text.embeddings are not finite numbers in float16")
        encoder = EncoderFeatures(**header["encoder"])
    vectors = None if embeddings is None else embeddings.numpy()
    tfidf = Tfidf(words, idf.numpy(), "prefix")
    return LabelText(tfidf, index, owners, TextWeights(**header["weights"]), vectors, encoder)


def _take(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    tensor = tensors.pop(PREFIX + name)
    if tensor.dtype != dtype or tensor.ndim != 1 or not len(tensor):
        raise FileError(f"its label_text.{name} has {tensor.dtype} of shape {tuple(tensor.shape)}")
    return storage.finite_numbers(f"label_text.{name}", tensor) if dtype.is_floating_point else tensor
