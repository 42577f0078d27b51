"""A tokenizer that is trained on the training texts, and word vectors from a file."""

import hashlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from holobind._checks import one_of, positive
from holobind._types import FloatArray
from holobind.data import cache as token_cache
from holobind.data.batches import PADDING, UNKNOWN, WORD_VECTOR_SCALE, TokenExamples
from holobind.data.files import DECOMPRESSION_ERRORS, excerpt, open_binary
from holobind.errors import DataError, FileError, OptionError

Kind = Literal["word", "bpe"]
SPECIAL_TOKENS = ["[PAD]", "[UNK]"]  # ids 0 and 1; no word contains a bracket
TOKEN_PATTERN = r"[\p{L}\p{M}\p{N}]+"
TEXTS_PER_CHUNK = 4096
MIN_CHARACTERS_TO_CACHE = 1 << 20
MAX_LINE_BYTES = 1 << 20  # of a file of word vectors
READ_BUFFER_BYTES = 1 << 20
MAX_WORD_VECTOR_DIM = 10_000  # a table of all words has this many columns; those in use have up to some 4,000
VECTORS_HEADER = re.compile(rb"\d{1,12}[ \t]+(\d{1,6})\s*")


class Tokenizer:
    """Splits texts into tokens and maps tokens to ids. Id 0 is padding, id 1 is any unknown word.

    A word is a run of letters and digits; everything else separates words and is dropped. With kind "word" the tokens
    are words. With kind "bpe" (byte pair encoding) they are subwords, and no word is unknown.

        tokenizer = Tokenizer.train(texts)
        examples = tokenizer.encode(texts)

    tokens     the vocabulary: the token of each id
    merges     the pairs of tokens that byte pair encoding merges, in order
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[tuple[str, str]] = (), kind: Kind = "word", lowercase: bool = True
    ) -> None:
        """Build a tokenizer from its vocabulary. `train` and `from_json` are the usual ways to get one."""
        self.tokens, self.merges, self.kind, self.lowercase = list(tokens), [*merges], kind, lowercase
        _check(self)
        token_ids = {token: i for i, token in enumerate(self.tokens)}
        if kind == "word":
            self._backend = _backend(models.WordLevel(token_ids, unk_token=SPECIAL_TOKENS[UNKNOWN]), kind, lowercase)
        else:
            model = models.BPE(token_ids, self.merges, unk_token=SPECIAL_TOKENS[UNKNOWN])
            self._backend = _backend(model, kind, lowercase)

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        kind: Kind = "word",
        vocab_size: int = 50_000,
        lowercase: bool = True,
        min_count: int = 2,
    ) -> "Tokenizer":
        """Learn the vocabulary: the most frequent tokens of these texts.

        vocab_size   maximal number of tokens, padding and unknown included
        min_count    how often a token must occur

        Words that are too rare to be tokens are unknown words in training, so that a network learns a vector for these.
        """
        one_of("Tokenizer", "kind", kind, get_args(Kind))
        positive("Tokenizer", "vocab_size", vocab_size, len(SPECIAL_TOKENS) + 1)
        options: dict[str, Any] = {"vocab_size": vocab_size}
        options |= {"min_frequency": positive("Tokenizer", "min_count", min_count)}
        options |= {"special_tokens": SPECIAL_TOKENS, "show_progress": False}
        model: Any
        trainer: Any
        if kind == "word":
            model, trainer = models.WordLevel(), trainers.WordLevelTrainer(**options)
        else:
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            model, trainer = models.BPE(), trainers.BpeTrainer(initial_alphabet=alphabet, **options)
        backend = _backend(model, kind, lowercase)
        backend.train_from_iterator(_check_texts(texts), trainer)
        learned = json.loads(backend.to_str())["model"]
        tokens = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
        return cls(tokens, [tuple(pair) for pair in learned.get("merges", ())], kind, lowercase)

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, texts: Sequence[str], max_tokens: int = 500, *, cache: bool = False) -> TokenExamples:
        """The ids of the first `max_tokens` tokens of each text.

        cache   keep the ids in the user's cache directory, if the texts have a million characters or more; the key is a
                hash of the texts, the tokenizer and `max_tokens`
        """
        positive("Tokenizer", "max_tokens", max_tokens)
        texts = _check_texts(texts)
        if not cache or sum(map(len, texts)) < MIN_CHARACTERS_TO_CACHE:
            return self._encode(texts, max_tokens)
        key = {"texts": _digest(texts), "tokenizer": _digest([self.to_json()]), "max_tokens": max_tokens}
        path = token_cache.cache_dir() / "tokens" / f"{_digest([json.dumps(key)])}.cache"
        if (found := token_cache.read(path, key)) and self._are_tokens(found[1], len(texts), max_tokens):
            return TokenExamples(found[1]["ids"], found[1]["offsets"])
        examples = self._encode(texts, max_tokens)
        token_cache.write(path, key, {}, {"ids": examples.ids, "offsets": examples.offsets})
        return examples

    def _are_tokens(self, arrays: dict[str, Any], n_texts: int, max_tokens: int) -> bool:
        """Whether arrays of the cache are ids of tokens, and offsets of texts; anybody can have written them."""
        ids, offsets = arrays.get("ids"), arrays.get("offsets")
        if ids is None or offsets is None or ids.dtype != np.int32 or offsets.dtype != np.int64:
            return False
        ascending = len(offsets) == n_texts + 1 and offsets[0] == 0 and not (offsets[1:] < offsets[:-1]).any()
        in_range = not len(ids) or 0 <= ids.min() <= ids.max() < self.vocab_size
        return bool(
            ascending and in_range and offsets[-1] == len(ids) and np.diff(offsets).max(initial=0) <= max_tokens
        )

    def _encode(self, texts: Sequence[str], max_tokens: int) -> TokenExamples:
        lengths, ids = [0], []
        for first in range(0, len(texts), TEXTS_PER_CHUNK):
            chunk = texts[first : first + TEXTS_PER_CHUNK]
            encoded = [encoding.ids[:max_tokens] for encoding in self._backend.encode_batch_fast(chunk)]
            lengths += map(len, encoded)
            ids.append(np.fromiter((i for text in encoded for i in text), np.int32, sum(map(len, encoded))))
        return TokenExamples(np.concatenate([np.empty(0, np.int32), *ids]), np.cumsum(lengths, dtype=np.int64))

    def to_json(self) -> str:
        """The tokenizer as JSON, for a file."""
        fields = {"kind": self.kind, "lowercase": self.lowercase, "tokens": self.tokens, "merges": self.merges}
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The tokenizer that `to_json` wrote. Any other text raises a FileError."""
        try:
            fields = json.loads(text)
            return cls(fields["tokens"], [(a, b) for a, b in fields["merges"]], fields["kind"], fields["lowercase"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = error if isinstance(error, OptionError) else f"{type(error).__name__} while reading its fields"
            raise FileError(f"the tokenizer in this file is damaged, or not one of holobind's ({reason})") from error


def load_word_vectors(
    path: str | Path,
    tokenizer: Tokenizer,
    dim: int | None = None,
    seed: int = 0,
    max_uncompressed: int | None = None,
) -> Tensor:
    """Load word vectors from a file of GloVe, word2vec or fastText in text format: `word 0.1 -0.2 ...`.

    The file may begin with a line `words dim`, and may be compressed (.gz, .bz2, .xz). It is read once, and only the
    vectors of the tokenizer's words are kept; other lines are only checked for their number of fields. If the tokenizer
    is in lower case, a word without a vector takes that of the first word of the file that differs only in case. Words
    that still have no vector get a small random one. Padding is zero.

    dim    dimensions of the vectors; needed only if the first word of the file contains a space
    seed   of the random vectors
    max_uncompressed   bytes to which a compressed file may expand, see `data.load`

    Shapes: -> (vocab_size, dim)
    """
    if tokenizer.kind != "word":
        raise OptionError(
            "load_word_vectors: word vectors need a tokenizer of words; train the tokenizer with kind='word'"
        )
    path, line = Path(path), 0
    token_ids = {token.encode(): i for i, token in enumerate(tokenizer.tokens) if i > UNKNOWN}
    same_case: dict[int, FloatArray] = {}
    other_case: dict[int, FloatArray] = {}
    with open_binary(path, max_uncompressed) as (raw, _):
        stream = io.BufferedReader(raw, READ_BUFFER_BYTES)  # type: ignore[type-var]
        try:
            for line, text in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), 1):
                if line == 1 and dim != 1 and (header := VECTORS_HEADER.fullmatch(text)):
                    if dim not in (None, int(header[1])):
                        raise DataError(f"the vectors have {int(header[1])} dimensions, not {dim}")
                    dim = int(header[1])
                elif len(text) == MAX_LINE_BYTES:
                    raise DataError(f"the line has {MAX_LINE_BYTES} bytes or more; are these vectors in text format?")
                elif text := text.strip(b" \t\r\n"):
                    dim = dim or len(text.split()) - 1
                    if dim > MAX_WORD_VECTOR_DIM:
                        raise DataError(
                            f"the vectors have {dim} dimensions; at most {MAX_WORD_VECTOR_DIM} are possible"
                        )
                    word, found = _word(text, dim), same_case
                    token_id = token_ids.get(word)
                    if token_id is None and tokenizer.lowercase:
                        lower = word.decode("utf-8", "replace").lower().encode()
                        token_id, found = token_ids.get(lower), other_case
                    if token_id is not None and token_id not in found:
                        found[token_id] = _vector(text, dim)
        except DataError as error:
            raise DataError(f"{path}:{line}: {error}") from None
        except DECOMPRESSION_ERRORS as error:
            raise DataError(f"{path}:{line + 1}: the {path.suffix} data is damaged or ends too early") from error
    if not other_case | same_case:
        raise DataError(f"{path}: has none of the tokenizer's {len(token_ids)} words; is it of the same language?")
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(tokenizer.vocab_size, dim or 1, generator=generator) * WORD_VECTOR_SCALE
    vectors[PADDING] = 0
    for token_id, vector in (other_case | same_case).items():
        vectors[token_id] = torch.from_numpy(vector)
    return vectors


def _word(text: bytes, dim: int) -> bytes:
    """The word of a line with a vector of `dim` numbers. Some words of GloVe contain spaces."""
    if dim and text.count(b" ") == dim:
        return text[: text.index(b" ")]
    fields = text.split()
    if not 0 < dim < len(fields) or (len(fields) > dim + 1 and _is_number(fields[-dim - 1])):
        expected = f"a word and {dim} numbers" if dim else "a word and its numbers"
        raise DataError(f"expected {expected}, found {len(fields)} fields: {excerpt(text)}")
    return b" ".join(fields[:-dim])


def _vector(text: bytes, dim: int) -> FloatArray:
    """The vector of a line whose word is a token and therefore contains no space."""
    fields = text.split()[1:]
    if wrong := next((field for field in fields if not _is_number(field)), None):
        raise DataError(f"{excerpt(wrong)} is not a number; expected a word and {dim} numbers")
    with np.errstate(over="ignore"):
        vector = np.array(list(map(float, fields)), np.float32)
    if len(vector) != dim or not np.isfinite(vector).all():
        raise DataError(f"expected a word and {dim} finite numbers, found {excerpt(text)}")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _backend(model: Any, kind: Kind, lowercase: bool) -> Backend:
    """The library's tokenizer: normalise, split into words, then apply the model.

    For byte pair encoding every word begins with a space mark, so that a token shows whether it begins a word. Padding
    and unknown are not special tokens of the library, because it would find these in texts that spell them.
    """
    backend = Backend(model)
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    backend.normalizer = normalizers.Sequence(steps)
    splitters: list[Any] = [pre_tokenizers.Split(Regex(TOKEN_PATTERN), "removed", invert=True)]
    if kind == "bpe":
        splitters.append(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    return backend


def _check(tokenizer: Tokenizer) -> None:
    """Refuse a vocabulary that may come from a damaged file: some would make the library abort the process."""
    one_of("Tokenizer", "kind", tokenizer.kind, get_args(Kind))
    one_of("Tokenizer", "lowercase", tokenizer.lowercase, (True, False))
    tokens = tokenizer.tokens
    if not all(isinstance(token, str) and token for token in tokens):
        raise OptionError("Tokenizer: tokens must be non-empty strings")
    known = set(tokens)
    if tokens[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS or len(known) < len(tokens):
        raise OptionError(f"Tokenizer: tokens must begin with {' '.join(SPECIAL_TOKENS)} and be distinct")
    if tokenizer.kind == "word" and tokenizer.merges:
        raise OptionError("Tokenizer: kind 'word' has no merges")
    for a, b in tokenizer.merges:
        if not (isinstance(a, str) and isinstance(b, str) and {a, b, a + b} <= known):
            raise OptionError(f"Tokenizer: each merge must join two tokens to a token; {(a, b)!r:.60} does not")


def _check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise OptionError("texts must be a list of texts, got one text; pass [text]")
    texts = list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {number} is {type(text).__name__}, not a string")
        try:
            _ = text.isascii() or text.encode()
        except UnicodeEncodeError:
            raise DataError(f"text {number} has half a surrogate pair; read it again with errors='replace'") from None
    return texts


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
