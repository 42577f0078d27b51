"""Sentence embeddings as features beside tf-idf: x = [tf-idf, weight embedding], to be scaled to length 1.

A model file has the name and the digest of its encoder, not the encoder. The encoder is opened when texts are first
read; one with another digest is refused. What a file names is never downloaded.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from holobind._types import CsrArray, FloatArray, ProgressCallback
from holobind.data.csr import from_arrays
from holobind.data.sentence_encoder import DIGEST_BYTES, SentenceEncoder
from holobind.errors import DataError, FileError, OptionError

MAX_DIM = 1 << 16
MAX_WEIGHT = 1e3
MAX_NAME_CHARACTERS = 4096
DIGEST = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


class EncoderFeatures:
    """The embeddings of one encoder, times a weight.

    name, digest, dim   of the encoder
    weight              the length of an embedding relative to that of the tf-idf features
    """

    def __init__(self, name: str, digest: str, dim: int, weight: float) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise OptionError(f"an encoder has a name; got {name!r:.40}")
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise OptionError(f"the digest of an encoder has {2 * DIGEST_BYTES} hexadecimal digits; got {digest!r:.40}")
        if type(dim) is not int or not 0 < dim <= MAX_DIM:
            raise OptionError(f"an encoder has from 1 to {MAX_DIM} dimensions; got {dim!r:.40}")
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= MAX_WEIGHT:
            raise OptionError(f"the weight of an encoder is above 0 and at most {MAX_WEIGHT:g}; got {weight!r:.40}")
        self.name, self.digest, self.dim, self.weight = name, digest, dim, float(weight)
        self._encoder: SentenceEncoder | None = None

    @classmethod
    def of(cls, encoder: SentenceEncoder, weight: float) -> "EncoderFeatures":
        found = cls(encoder.name, encoder.digest, encoder.dim, weight)
        found._encoder = encoder
        return found

    def config(self) -> dict[str, Any]:
        """JSON values that, as keyword arguments of the class, build it again."""
        return {"name": self.name, "digest": self.digest, "dim": self.dim, "weight": self.weight}

    def use(self, name: str | Path) -> None:
        """Take the encoder from another place; it must be the same one."""
        self._encoder = self._checked(SentenceEncoder.open(name))

    def append_to(
        self,
        X: CsrArray,
        texts: Sequence[str],
        *,
        cache: bool = False,
        on_progress: ProgressCallback | None = None,
    ) -> CsrArray:
        """Features of texts with their embeddings beside them.  Shapes: sparse (n, f), texts -> sparse (n, f + dim)"""
        return beside(X, self.embed(texts, cache=cache, on_progress=on_progress), self.weight)

    def embed(
        self, texts: Sequence[str], *, cache: bool = False, on_progress: ProgressCallback | None = None
    ) -> FloatArray:
        """Embeddings of length 1.  Shapes: texts -> (n, dim)"""
        if self._encoder is None:
            try:
                self._encoder = self._checked(SentenceEncoder.open(self.name, fetch=False))
            except OptionError as error:
                raise DataError(
                    f"this model needs the encoder {self.name[:80]}, which is not here; give its folder with "
                    f"--encoder, or holobind.load(path, encoder=...) ({error})"
                ) from error
        return self._encoder.embed(texts, cache=cache, on_progress=on_progress)

    def _checked(self, encoder: SentenceEncoder) -> SentenceEncoder:
        if encoder.digest != self.digest:
            raise FileError(
                f"this model was trained with the encoder {self.name[:80]} of hash {self.digest[:12]}; {encoder.name} "
                f"has hash {encoder.digest[:12]}, so its embeddings mean something else; give the same encoder with "
                "--encoder"
            )
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_encoder": None}  # copies and pickles open their own


def beside(X: CsrArray, embeddings: FloatArray, weight: float) -> CsrArray:
    """[X, weight embeddings].  Shapes: sparse (n, f), (n, dim) -> sparse (n, f + dim)"""
    if not weight:
        return X
    joined = sparse.hstack([X, sparse.csr_array(np.float32(weight) * embeddings)], format="csr", dtype=np.float32)
    return from_arrays(joined.data, joined.indices, joined.indptr, joined.shape)
