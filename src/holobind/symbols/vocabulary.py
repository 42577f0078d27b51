"""Symbols with names: write statements, ask questions, see the noise.

    v = Vocabulary(dim=512)
    S = v.parse("red*cat + blue*dog")       or    S = (v.red * v.cat + v.blue * v.dog).vector
    v.ask(S, "red")                          cat first, with its similarity, response and confidence

Statements are plain tensors of shape (d), or (n, d) for n of them; gradients flow through everything.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from holobind import _storage as storage
from holobind import algebra
from holobind._checks import integer, positive
from holobind.codebooks import OrbitCodebook
from holobind.errors import FileError, OptionError, ShapeError, UnknownNameError
from holobind.symbols import expression
from holobind.symbols.capacity import capacity
from holobind.symbols.vsa import HRR, MAPC, VSA, VTB, UnitaryHRR

VERSION = 1
MOST_DIM = 1 << 20  # of a file; larger ones would be a way to ask for memory
SYSTEMS: dict[str, VSA] = {
    "unitary-hrr": UnitaryHRR(),
    "hrr-exact": HRR("exact"),
    "hrr-approximate": HRR("approximate"),
    "vtb": VTB(),
    "map-c-exact": MAPC("exact"),
    "map-c-approximate": MAPC("approximate"),
}
PRESENT = 0.5  # the paper's rule: a response above it means that the statement holds what was asked for


@dataclass(frozen=True)
class Answer:
    """One candidate for what a question asks.

    similarity: cosine of the answer's vector with the candidate's, from -1 to 1.
    response: their dot product over the candidate's square length: near 1 where present, near 0 where absent.
    confidence: the probability that it is present rather than absent, both equally likely before, given the noise
        law: absent vectors respond with standard deviation |answer| / (|candidate| sqrt(d)), about sqrt(n / d).
    error: the expected probability that noise puts a wrong name first, among as many names as the vocabulary has.
    """

    name: str
    similarity: float
    response: float
    confidence: float
    error: float

    @property
    def present(self) -> bool:
        """The paper's rule: the response is above one half."""
        return self.response > PRESENT


class Statement:
    """A vector with operators: `*` binds (or scales, with a number), `+` and `-` add up, `~` inverts."""

    __slots__ = ("_system", "vector")

    def __init__(self, vector: Tensor, system: VSA) -> None:
        self.vector = vector
        self._system = system

    def __mul__(self, other: "Statement | Tensor | float") -> "Statement":
        if isinstance(other, Statement):
            return Statement(self._system.bind(self.vector, other.vector), self._system)
        return Statement(self.vector * other, self._system)

    __rmul__ = __mul__

    def __add__(self, other: "Statement") -> "Statement":
        return Statement(self.vector + other.vector, self._system)

    def __sub__(self, other: "Statement") -> "Statement":
        return Statement(self.vector - other.vector, self._system)

    def __neg__(self) -> "Statement":
        return Statement(-self.vector, self._system)

    def __invert__(self) -> "Statement":
        return Statement(self._system.invert(self.vector), self._system)

    def __repr__(self) -> str:
        return f"Statement(shape={tuple(self.vector.shape)})"


class Vocabulary:
    """Names and their vectors. A name gets its vector on first use, from the seed and the name alone.

    So two vocabularies with one seed agree on every name they share, in whatever order the names came. `v["red"]` is
    the vector; `v.red` is the same with operators (for names that are not also methods here). `v.add(name, vector)`
    puts in a vector of yours, a trainable parameter for example.
    """

    def __init__(self, dim: int, seed: int = 0, vsa: VSA | None = None) -> None:
        self.dim = positive("Vocabulary", "dim", dim)
        self.seed = integer("Vocabulary", "seed", seed)
        self.vsa: VSA = vsa or UnitaryHRR()
        self._vectors: dict[str, Tensor] = {}
        self.vsa.random(0, dim)  # a dimension the system refuses is refused here

    # Names and vectors.

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._vectors:
            self._vectors[_checked_name(name)] = self._drawn(name)
        return self._vectors[name]

    def __getattr__(self, name: str) -> Statement:
        if name.startswith("_"):  # nothing of Python's own, such as __deepcopy__, becomes a symbol
            raise AttributeError(name)
        return Statement(self[name], self.vsa)

    def add(self, name: str, vector: Tensor) -> None:
        """Put in a vector of yours; gradients reach it. A name already there is replaced."""
        if vector.shape != (self.dim,):
            raise ShapeError(f"add: the vector of {name!r} must have shape ({self.dim},), got {tuple(vector.shape)}")
        self._vectors[_checked_name(name)] = vector

    def __len__(self) -> int:
        return len(self._vectors)

    def __contains__(self, name: object) -> bool:
        return name in self._vectors

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    @property
    def vectors(self) -> Tensor:
        """All vectors, in the order of iteration. Shape: (n, d)"""
        return torch.stack(list(self._vectors.values())) if self._vectors else torch.empty(0, self.dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, seed={self.seed}, {len(self)} names)"

    # Statements.

    @overload
    def parse(self, text: str) -> Tensor: ...
    @overload
    def parse(self, text: Sequence[str]) -> Tensor: ...
    def parse(self, text: str | Sequence[str]) -> Tensor:
        """The vector of a statement such as "red*cat + 0.5*blue*dog", (d); or of several, (n, d).

        New names get vectors. The grammar is at the top of `holobind.expression`.
        """
        if isinstance(text, str):
            return expression.evaluate(text, self.__getitem__, self.vsa)
        return torch.stack([self.parse(one) for one in text])

    # Questions. Names in them must be known: a typing error would otherwise be answered with noise.

    @overload
    def ask(self, statement: "Tensor | Statement | str", key: str, k: int = 5) -> list[Answer]: ...
    @overload
    def ask(self, statement: "Tensor | Statement | str", key: Tensor, k: int = 5) -> list[Answer]: ...
    def ask(self, statement: "Tensor | Statement | str", key: "str | Tensor", k: int = 5) -> list[Answer]:
        """What goes with `key` in the statement: the k most similar names, best first.

        v.ask(S, "red"), or a path: v.ask(S, "first*name").
        """
        return self.clean_up(self.vsa.unbind(self._vector(statement), self._key(key)), k)

    def clean_up(self, vector: "Tensor | Statement | str", k: int = 5) -> list[Answer]:
        """The k names whose vectors are most similar to a noisy one, best first."""
        answer = self._vector(vector)
        if answer.ndim != 1:
            raise ShapeError(f"clean_up: wants one vector, got shape {tuple(answer.shape)}; use ask_all for several")
        return self._answers(answer.detach()[None], k)[0]

    def ask_all(self, statements: "Tensor | Sequence[str]", key: "str | Tensor", k: int = 5) -> list[list[Answer]]:
        """`ask` for a batch of statements, (n, d), at once."""
        batch = statements if isinstance(statements, Tensor) else self.parse(statements)
        if batch.ndim != 2:
            raise ShapeError(f"ask_all: wants statements of shape (n, {self.dim}), got {tuple(batch.shape)}")
        return self._answers(self.vsa.unbind(batch, self._key(key)).detach(), k)

    def response(self, statement: "Tensor | Statement | str", part: "str | Tensor") -> Tensor:
        """How strongly the statement holds `part`, such as "red*cat": near 1 if it does, near 0 if not."""
        held, wanted = self._vector(statement), self._key(part)
        return (held * wanted).sum(-1) / wanted.square().sum(-1)

    def contains(self, statement: "Tensor | Statement | str", part: "str | Tensor") -> bool:
        """Whether the response to `part` is above one half."""
        return bool(self.response(statement, part) > PRESENT)

    # Files.

    def save(self, path: str | Path) -> None:
        """Write names and vectors to a .safetensors file, whole or not at all."""
        storage.write(path, "vocabulary", VERSION, self._header(), {"vectors": self.vectors})

    @staticmethod
    def load(path: str | Path) -> "Vocabulary":
        """Read what `save` wrote; anything else is refused with a FileError."""
        header, tensors = storage.read(path, "vocabulary", VERSION)
        names, dim, seed, system = header.get("names"), header.get("dim"), header.get("seed"), header.get("vsa")
        if (
            not (isinstance(dim, int) and 1 <= dim <= MOST_DIM and isinstance(seed, int))
            or not (isinstance(names, list) and all(isinstance(name, str) for name in names))
            or len(set(names)) != len(names)
            or not (isinstance(system, str) and system in SYSTEMS)
        ):
            raise FileError(f"{path} has a vocabulary header that makes no sense; get it again")
        try:
            if header.get("large") is True:
                return LargeVocabulary(names, dim, seed)
            vectors = tensors.get("vectors")
            if vectors is None or vectors.shape != (len(names), dim) or not vectors.is_floating_point():
                raise FileError(f"{path} does not hold one vector of {dim} numbers for each of its {len(names)} names")
            if not vectors.isfinite().all():
                raise FileError(f"{path} holds vectors with numbers that are not finite")
            vocabulary = Vocabulary(dim, seed, SYSTEMS[system])
            for name, vector in zip(names, vectors, strict=True):
                vocabulary.add(name, vector)
        except (OptionError, ShapeError) as error:
            raise FileError(f"{path} holds a vocabulary that makes no sense: {error}") from error
        return vocabulary

    def _header(self) -> dict[str, Any]:
        systems = [name for name, system in SYSTEMS.items() if system == self.vsa]
        if not systems:
            raise OptionError(f"save: only vocabularies of {', '.join(SYSTEMS)} can be saved, not {self.vsa!r}")
        return {"names": list(self), "dim": self.dim, "seed": self.seed, "vsa": systems[0]}

    # Inside.

    def _drawn(self, name: str) -> Tensor:
        digest = hashlib.blake2b(f"{self.seed}\0{name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        return self.vsa.random(1, self.dim, generator)[0]

    def _known(self, name: str) -> Tensor:
        if name not in self:
            near = get_close_matches(name, list(self)[:10_000], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "use it in a statement first, or add it"
            raise UnknownNameError(f"{name!r} is not among the {len(self)} names of this vocabulary; {hint}")
        return self[name]

    def _key(self, key: "str | Tensor") -> Tensor:
        return expression.evaluate(key, self._known, self.vsa) if isinstance(key, str) else self._vector(key)

    def _vector(self, statement: "Tensor | Statement | str") -> Tensor:
        if isinstance(statement, str):
            return self.parse(statement)
        vector = statement.vector if isinstance(statement, Statement) else statement
        if vector.ndim == 0 or vector.shape[-1] != self.dim:
            raise ShapeError(f"a statement of this vocabulary has {self.dim} numbers, got shape {tuple(vector.shape)}")
        return vector

    def _answers(self, answers: Tensor, k: int) -> list[list[Answer]]:
        k = min(positive("ask", "k", k), len(self))
        if k == 0:
            raise UnknownNameError("this vocabulary has no names yet; use some in a statement, or add them")
        lengths = answers.norm(dim=-1)
        found = []
        for row, (names, dots, norms) in enumerate(self._nearest(answers, k)):
            length = float(lengths[row])
            pairs = max(1, round((length / norms[0]) ** 2)) if norms[0] else 1
            error = capacity(self.dim, pairs, len(self) - 1)
            found.append(
                [
                    _answer(name, dot, norm, length, self.dim, error)
                    for name, dot, norm in zip(names, dots, norms, strict=True)
                ]
            )
        return found

    def _nearest(self, answers: Tensor, k: int) -> Iterator[tuple[list[str], list[float], list[float]]]:
        """Of each answer's k most similar names: the names, the dot products, and the lengths of their vectors."""
        vectors, names = self.vectors.detach(), list(self)
        norms = vectors.norm(dim=-1)
        best = algebra.similarity(answers[:, None], vectors).topk(k, dim=-1).indices
        dots = answers @ vectors.T
        for row, chosen in enumerate(best):
            yield [names[i] for i in chosen.tolist()], dots[row, chosen].tolist(), norms[chosen].tolist()


class LargeVocabulary(Vocabulary):
    """A fixed list of very many names whose vectors are never stored, cleaned up in milliseconds for a million.

    The vector of a name follows from its place in the list: it is that label's vector in an `OrbitCodebook`, a roll of
    one of a few base vectors, with its elements in a shuffled order that is the same for all names,

        c_i[k] = orbit_i[shuffle[k]]         <v, c_i> = <v[unshuffle], orbit_i>

    so that all names are compared with an answer by a few inverse FFTs. Without the shuffle, rolls would bind to
    rolls: a_12 (x) a_34 would be a_7 (x) a_39 exactly, and a question about one pair would be answered by another.
    The shuffled vectors have length 1 but are not unitary, hence the approximate inverse; noise grows by little.

    Names beyond the list can be used as roles, "capital*Paris": they get vectors as in any vocabulary, and are never
    answers.
    """

    def __init__(self, names: Iterable[str], dim: int, seed: int = 0) -> None:
        super().__init__(dim, seed, HRR("approximate"))
        self._names = [_checked_name(name) for name in names]
        self._places = {name: place for place, name in enumerate(self._names)}
        if len(self._places) != len(self._names):
            raise OptionError(f"LargeVocabulary: {len(self._names) - len(self._places)} of the names come twice")
        if not self._names:
            raise OptionError("LargeVocabulary: wants at least one name")
        self._codebook = OrbitCodebook(len(self._names), dim, seed)
        self._shuffle = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))
        self._unshuffle = self._shuffle.argsort()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._places:
            return super().__getitem__(name)
        return self._codebook.vectors(torch.tensor([self._places[name]]))[0, self._shuffle]

    def add(self, name: str, vector: Tensor) -> None:
        raise OptionError(f"{name!r} cannot be added: the vectors of a LargeVocabulary are not stored")

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._places or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @property
    def vectors(self) -> Tensor:
        """All vectors: (n, d). They are made for you here and take n x d numbers."""
        return self._codebook.vectors(torch.arange(len(self)))[:, self._shuffle]

    def save(self, path: str | Path) -> None:
        """Write the names to a .safetensors file; the vectors follow from them."""
        storage.write(path, "vocabulary", VERSION, {**self._header(), "large": True}, {"vectors": torch.empty(0)})

    def _drawn(self, name: str) -> Tensor:
        return algebra.unitary(super()._drawn(name))  # roles can be unitary, and unbind exactly

    def _nearest(self, answers: Tensor, k: int) -> Iterator[tuple[list[str], list[float], list[float]]]:
        scores, places = self._codebook.top_k(answers[:, self._unshuffle], k)
        for row in range(len(answers)):
            yield [self._names[i] for i in places[row].tolist()], scores[row].tolist(), [1.0] * k


def _answer(name: str, dot: float, norm: float, length: float, dim: int, error: float) -> Answer:
    if norm == 0 or length == 0:
        return Answer(name, 0.0, 0.0, 0.5, error)
    response = dot / norm**2
    # What is left of the answer beside this candidate is noise; of a random vector's direction, 1/d falls on it.
    variance = max((length / norm) ** 2 - response**2, 0) / dim
    odds = (response - PRESENT) / variance if variance else (response - PRESENT) * 1e9
    confidence = 1 / (1 + exp(-odds)) if odds > -700 else 0.0
    return Answer(name, dot / (norm * length), response, confidence, error)


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or len(name) > 1000 or not name.isprintable():
        raise OptionError(f"a name must be 1 to 1000 printable characters, got {str(name)[:40]!r}")
    return name
