"""Texts as numbers: a tokenizer learned from the training texts, and word vectors from a file."""

import hashlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine
from torch import Tensor

from holobind._checks import one_of, positive
from holobind.data import cache as stored
from holobind.data.batches import PADDING, UNKNOWN, WORD_VECTOR_SCALE, TokenExamples
from holobind.data.sparse_text import BROKEN, _shown, opened
from holobind.errors import DataError, FileError, OptionError

Kind = Literal["word", "bpe"]
SPECIAL = ["[PAD]", "[UNK]"]  # ids 0 and 1; no word has a bracket
WORD = r"[\p{L}\p{M}\p{N}]+"
PORTION = 4096
WORTH_CACHING = 1 << 20
LONGEST_LINE = 1 << 20
VECTORS_HEADER = re.compile(rb"\d{1,12}[ \t]+(\d{1,6})\s*")


class Tokenizer:
    """Cuts texts into tokens and numbers them: 0 is padding, 1 any word that is not known.

    A word is a run of letters and digits; what is between words is dropped. Of kind "word" the tokens are words, of
    kind "bpe" the frequent parts of words (byte pairs), so that nothing is unknown.

    tokenizer = Tokenizer.train(texts)
    examples = tokenizer.encode(texts)
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[tuple[str, str]] = (), kind: Kind = "word", lowercase: bool = True
    ) -> None:
        """Of its parts; `train` and `from_json` are the usual ways."""
        self.tokens, self.merges, self.kind, self.lowercase = list(tokens), [*merges], kind, lowercase
        _check(self)
        numbers = {token: number for number, token in enumerate(self.tokens)}
        if kind == "word":
            self._engine = _engine(models.WordLevel(numbers, unk_token=SPECIAL[UNKNOWN]), kind, lowercase)
        else:
            model = models.BPE(numbers, self.merges, unk_token=SPECIAL[UNKNOWN])
            self._engine = _engine(model, kind, lowercase)

    @classmethod
    def train(
        cls, texts: Sequence[str], kind: Kind = "word", size: int = 50_000, lowercase: bool = True, least: int = 2
    ) -> "Tokenizer":
        """The `size` most frequent tokens of these texts, padding and unknown included, that occur `least` times.

        Words too rare to be tokens teach the network what to make of an unknown word.
        """
        one_of("Tokenizer", "kind", kind, get_args(Kind))
        if positive("Tokenizer", "size", size) <= len(SPECIAL):
            raise OptionError(f"Tokenizer: size must be at least {len(SPECIAL) + 1}; got {size}")
        options: dict[str, Any] = {"vocab_size": size, "min_frequency": positive("Tokenizer", "least", least)}
        options |= {"special_tokens": SPECIAL, "show_progress": False}
        model: Any
        trainer: Any
        if kind == "word":
            model, trainer = models.WordLevel(), trainers.WordLevelTrainer(**options)
        else:
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            model, trainer = models.BPE(), trainers.BpeTrainer(initial_alphabet=alphabet, **options)
        engine = _engine(model, kind, lowercase)
        engine.train_from_iterator(_checked(texts), trainer)
        learned = json.loads(engine.to_str())["model"]
        tokens = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
        return cls(tokens, [tuple(pair) for pair in learned.get("merges", ())], kind, lowercase)

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, texts: Sequence[str], max_tokens: int = 500, *, cache: bool = False) -> TokenExamples:
        """The first `max_tokens` tokens of each text.

        With `cache` the tokens of a larger collection are kept in the user's cache directory and found again by the
        texts and the tokenizer themselves.
        """
        positive("Tokenizer", "max_tokens", max_tokens)
        texts = _checked(texts)
        if not cache or sum(map(len, texts)) < WORTH_CACHING:
            return self._encode(texts, max_tokens)
        key = {"texts": _digest(texts), "tokenizer": _digest([self.to_json()]), "max_tokens": max_tokens}
        at = stored.directory() / "tokens" / f"{_digest([json.dumps(key)])}.cache"
        if found := stored.read(at, key):
            return TokenExamples(found[1]["ids"], found[1]["offsets"])
        examples = self._encode(texts, max_tokens)
        stored.write(at, key, {}, {"ids": examples.ids, "offsets": examples.offsets})
        return examples

    def _encode(self, texts: Sequence[str], max_tokens: int) -> TokenExamples:
        lengths, ids = [0], []
        for first in range(0, len(texts), PORTION):
            found = [e.ids[:max_tokens] for e in self._engine.encode_batch_fast(texts[first : first + PORTION])]
            lengths += map(len, found)
            ids.append(np.fromiter((i for text in found for i in text), np.int32, sum(map(len, found))))
        return TokenExamples(np.concatenate([np.empty(0, np.int32), *ids]), np.cumsum(lengths, dtype=np.int64))

    def to_json(self) -> str:
        """All of it, for a model file."""
        parts = {"kind": self.kind, "lowercase": self.lowercase, "tokens": self.tokens, "merges": self.merges}
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """What `to_json` gave. Anything else is refused."""
        try:
            parts = json.loads(text)
            return cls(parts["tokens"], [(a, b) for a, b in parts["merges"]], parts["kind"], parts["lowercase"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what = error if isinstance(error, OptionError) else f"{type(error).__name__} where its parts should be"
            raise FileError(f"the tokenizer in this file is damaged, or not one of holobind's ({what})") from error


def load_word_vectors(path: str | Path, tokenizer: Tokenizer, dim: int | None = None, seed: int = 0) -> Tensor:
    """Word vectors from a file of GloVe, word2vec or fastText in text format: `word 0.1 -0.2 ...`.

    The file may begin with a line `words dim`, and may be packed (.gz, .bz2, .xz). It is read once, and only the
    vectors of this tokenizer's words are kept; of other words' lines only the fields are counted. A word of a
    tokenizer in lower case that has no vector takes that of the first word which differs in case only. Words without
    any are random and small, padding is zero. `dim` is needed only if the first word of the file has a blank in it.

    Shapes: -> (vocab_size, dim)
    """
    if tokenizer.kind != "word":
        raise OptionError("load_word_vectors: there are vectors of words only; train the tokenizer with kind='word'")
    path, line = Path(path), 0
    wanted = {token.encode(): number for number, token in enumerate(tokenizer.tokens) if number > UNKNOWN}
    exact: dict[int, NDArray[np.float32]] = {}
    folded: dict[int, NDArray[np.float32]] = {}
    with opened(path) as (raw, _):
        stream = io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]
        try:
            for line, text in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), 1):
                if line == 1 and dim != 1 and (header := VECTORS_HEADER.fullmatch(text)):
                    if dim not in (None, int(header[1])):
                        raise DataError(f"the vectors have {int(header[1])} numbers, not the {dim} asked for")
                    dim = int(header[1])
                elif len(text) == LONGEST_LINE:
                    raise DataError(f"a line of {LONGEST_LINE} bytes or more; are these vectors in text format?")
                elif text := text.strip(b" \t\r\n"):
                    dim = dim or len(text.split()) - 1
                    word, into = _word(text, dim), exact
                    number = wanted.get(word)
                    if number is None and tokenizer.lowercase:
                        number, into = wanted.get(word.decode("utf-8", "replace").lower().encode()), folded
                    if number is not None and number not in into:
                        into[number] = _vector(text, dim)
        except DataError as error:
            raise DataError(f"{path}:{line}: {error}") from None
        except BROKEN as error:
            raise DataError(f"{path}:{line + 1}: the {path.suffix} data is damaged or ends too early") from error
    if not folded | exact:
        raise DataError(f"{path}: has none of the tokenizer's {len(wanted)} words; is it of the same language?")
    found = (
        torch.randn(tokenizer.vocab_size, dim or 1, generator=torch.Generator().manual_seed(seed)) * WORD_VECTOR_SCALE
    )
    found[PADDING] = 0
    for number, vector in (folded | exact).items():
        found[number] = torch.from_numpy(vector)
    return found


def _word(text: bytes, dim: int) -> bytes:
    """The word of a line of `dim` numbers. Some words of GloVe have blanks in them."""
    if dim and text.count(b" ") == dim:
        return text[: text.index(b" ")]
    fields = text.split()
    if not 0 < dim < len(fields) or (len(fields) > dim + 1 and _is_number(fields[-dim - 1])):
        wanted = f"a word and {dim} numbers" if dim else "a word and its numbers"
        raise DataError(f"expected {wanted}, found {len(fields)} fields: {_shown(text)}")
    return b" ".join(fields[:-dim])


def _vector(text: bytes, dim: int) -> NDArray[np.float32]:
    """The numbers of a line whose word is one of ours and so has no blanks."""
    fields = text.split()[1:]
    if wrong := next((field for field in fields if not _is_number(field)), None):
        raise DataError(f"{_shown(wrong)} is not a number; expected a word and {dim} numbers")
    with np.errstate(over="ignore"):
        vector = np.array(list(map(float, fields)), np.float32)
    if len(vector) != dim or not np.isfinite(vector).all():
        raise DataError(f"expected a word and {dim} finite numbers, found {_shown(text)}")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _engine(model: Any, kind: Kind, lowercase: bool) -> Engine:
    """Normalised, cut into words; for byte pairs each word begins with a mark, so that its parts know where they are.

    Padding and unknown are not among the engine's special tokens: it would find those in texts that spell them.
    """
    engine = Engine(model)
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    engine.normalizer = normalizers.Sequence(steps)
    cut: list[Any] = [pre_tokenizers.Split(Regex(WORD), "removed", invert=True)]
    if kind == "bpe":
        cut.append(pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False))
    engine.pre_tokenizer = pre_tokenizers.Sequence(cut)
    return engine


def _check(tokenizer: Tokenizer) -> None:
    """Parts that make no sense may come from a damaged file; the engine would stop the program for some."""
    one_of("Tokenizer", "kind", tokenizer.kind, get_args(Kind))
    one_of("Tokenizer", "lowercase", tokenizer.lowercase, (True, False))
    tokens = tokenizer.tokens
    if not all(isinstance(token, str) and token for token in tokens):
        raise OptionError("Tokenizer: tokens must be strings that are not empty")
    known = set(tokens)
    if tokens[: len(SPECIAL)] != SPECIAL or len(known) < len(tokens):
        raise OptionError(f"Tokenizer: tokens must begin with {' '.join(SPECIAL)} and have no token twice")
    if tokenizer.kind == "word" and tokenizer.merges:
        raise OptionError("Tokenizer: kind 'word' has no merges")
    for a, b in tokenizer.merges:
        if not (isinstance(a, str) and isinstance(b, str) and {a, b, a + b} <= known):
            raise OptionError(f"Tokenizer: merges must be of tokens and give a token; {(a, b)!r:.60} does not")


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise OptionError("texts: wants a list of texts, got one text; pass [text]")
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
    total = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()
