"""Symbols with names: write statements, query them, and see how reliable the answers are.

    v = Vocabulary(dim=512)
    S = v.parse("red*cat + blue*dog")        # creates the four names
    v.ask(S, "red")                          # cat first, with its similarity, response and confidence
    S = (v.red * v.cat + v.blue * v.dog).vector   # the same statement, from names that exist

A statement is a plain tensor of shape (d), a batch of n statements has shape (n, d). Gradients flow through both.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holobind import _storage as storage
from holobind import algebra
from holobind._checks import excerpt, fits_memory, positive
from holobind._checks import seed as checked_seed
from holobind.codebooks import OrbitCodebook
from holobind.errors import FileError, OptionError, ShapeError, UnknownNameError
from holobind.symbols import expression
from holobind.symbols.capacity import expected_error
from holobind.symbols.vsa import HRR, SYSTEMS, VSA, as_system

FORMAT_VERSION = 2
VECTOR_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # that a file may hold
MAX_DIM_IN_FILE = 1 << 20  # a file with a larger dim could make `load` allocate any amount of memory
BYTES_PER_ELEMENT, WORKING_VECTORS = 4, 4  # a computation has some spectra and results beside its operands
MAX_NAME_CHARACTERS = 1000
MAX_NAMES_FOR_HINTS = 10_000  # among which close matches of a mistyped name are searched
PRESENT_THRESHOLD = 0.5  # the paper's rule: the statement holds what responds more strongly


@dataclass(frozen=True)
class Answer:
    """One candidate name for the result of a query.

    similarity: cosine similarity of the unbound vector and the candidate's vector, from -1 to 1.
    response: their dot product divided by the candidate's square norm: about 1 if present, about 0 if absent.
    confidence: the probability that the candidate is present, given its response, with equal prior probabilities. In
        the crosstalk model of `holobind.symbols.capacity`, the response of an absent candidate has standard deviation
        |unbound| / (|candidate| sqrt(d)), which is about sqrt(n / d) for n pairs.
    error: the expected probability that crosstalk ranks a wrong name of the vocabulary first.
    """

    name: str
    similarity: float
    response: float
    confidence: float
    error: float

    @property
    def present(self) -> bool:
        """Whether the response is above one half, the paper's rule."""
        return self.response > PRESENT_THRESHOLD


class Statement:
    """A vector with operators: `*` binds two statements or scales by a number, `+` and `-` bundle, `~` inverts."""

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
    """Names and their vectors, with a cleanup memory over all of them.

    The vector of a name is drawn from the seed and the name alone, so two vocabularies with one seed agree on every
    name that both have, whatever the order of creation.

    Names are created by `v["red"]`, which is the vector; by `v.add("red")`, or `v.add("red", vector)` with a vector of
    the caller, for example a trainable parameter; and by text statements, `v.parse("red*cat")`. Attributes create
    nothing: `v.red` is the `Statement` of a name that exists (and is no attribute of the class), with operators.

    vsa: the vector-symbolic architecture, a name in `holobind.vsa.SYSTEMS` ("unitary-hrr", "hrr-exact",
        "hrr-approximate", "vtb", "map-c-exact", "map-c-approximate") or an instance. With "vtb", `*` does not commute:
        see `ask`.
    """

    def __init__(self, dim: int, seed: int = 0, vsa: VSA | str = "unitary-hrr") -> None:
        self.dim = positive("Vocabulary", "dim", dim)
        self.seed = checked_seed("Vocabulary", seed)
        self.vsa: VSA = as_system("Vocabulary", vsa)
        self._vectors: dict[str, Tensor] = {}
        self._check_memory()
        self.vsa.random(0, dim)  # raises here if the system does not support this dimension

    # Names and vectors.

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._vectors:
            _check_name(name)
            self._check_memory()
            self._vectors[name] = self._draw(name)
        return self._vectors[name]

    def __getattr__(self, name: str) -> Statement:
        # Private names first: copy and pickle look up __deepcopy__ and others before self._vectors exists.
        if name.startswith("_") or name not in self:
            hint = "" if name.startswith("_") else f"; {self._hint(name, f'v[{name!r}] creates it')}"
            kind = type(self).__name__
            raise AttributeError(f"{name!r} is neither an attribute nor a name of this {kind}{hint}", name=name)
        return Statement(self[name], self.vsa)

    def add(self, name: str, vector: Tensor | None = None) -> None:
        """Add a name with the given vector, which may require gradients; a name that exists gets the new vector.

        Without a vector, a new name gets the vector that the seed gives it, and a name that exists keeps its vector.
        """
        if vector is None:
            self[name]
            return
        if vector.shape != (self.dim,):
            raise ShapeError(f"add: the vector of {name!r} must have shape ({self.dim},), got {tuple(vector.shape)}")
        _check_name(name)
        self._vectors[name] = vector

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

    def parse(self, text: str | Sequence[str], *, strict: bool = False) -> Tensor:
        """The vector of a statement such as "red*cat + 0.5*blue*dog", (d); or of several statements, (n, d).

        Names that do not exist are created; strict=True raises an UnknownNameError instead. The grammar is described
        in `holobind.symbols.expression`.
        """
        if isinstance(text, str):
            return expression.evaluate(text, self._known if strict else self.__getitem__, self.vsa)
        return torch.stack([self.parse(statement, strict=strict) for statement in text])

    # Queries. All names in a key must exist: the answer to a mistyped name would be noise.

    def ask(self, statement: "Tensor | Statement | str", key: "str | Tensor", k: int = 5) -> list[Answer]:
        """What is bound with `key` in the statement: the k most similar names, best first.

        The key is a name, v.ask(S, "red"), or a path, v.ask(S, "first*name").

        VTB binding is neither commutative nor associative: a*b can only be asked with its right operand b, and a path
        one key at a time, v.ask(v.vsa.unbind(S, v["first"]), "name"). `v.vsa.swap(S)` exchanges the operands. If the
        statement is text, a key that is no right operand in it raises an OptionError. If the statement is a vector, its
        operands are not known, and the answers are noise of low confidence.
        """
        unbound = self.vsa.unbind(self._vector(statement), self._key(key))
        self._check_side(statement, key)
        return self.clean_up(unbound, k)

    def clean_up(self, vector: "Tensor | Statement | str", k: int = 5) -> list[Answer]:
        """The cleanup memory: the k names whose vectors are most similar to a noisy vector, best first."""
        noisy = self._vector(vector)
        if noisy.ndim != 1:
            raise ShapeError(f"clean_up: expects one vector, got shape {tuple(noisy.shape)}; use ask_batch for a batch")
        return self._answers(noisy.detach()[None], k)[0]

    def ask_batch(self, statements: "Tensor | Sequence[str]", key: "str | Tensor", k: int = 5) -> list[list[Answer]]:
        """`ask` for a batch of statements, (n, d), at once."""
        batch = statements if isinstance(statements, Tensor) else self.parse(statements)
        if batch.ndim != 2:
            raise ShapeError(f"ask_batch: expects statements of shape (n, {self.dim}), got {tuple(batch.shape)}")
        unbound = self.vsa.unbind(batch, self._key(key))
        for statement in () if isinstance(statements, Tensor) else statements:
            self._check_side(statement, key)
        return self._answers(unbound.detach(), k)

    def response(self, statement: "Tensor | Statement | str", part: "str | Tensor") -> Tensor:
        """How strongly the statement holds `part`, such as "red*cat": about 1 if it does, about 0 if not."""
        held, wanted = self._vector(statement), self._key(part)
        found = (held * wanted).sum(-1) / wanted.square().sum(-1)
        return algebra.finite(f"the response to {part!r:.60}", found) if isinstance(part, str) else found

    def contains(self, statement: "Tensor | Statement | str", part: "str | Tensor") -> bool:
        """Whether the response to `part` is above one half."""
        return bool(self.response(statement, part) > PRESENT_THRESHOLD)

    # Files.

    def save(self, path: str | Path) -> None:
        """Write names and vectors to a .safetensors file. The file is complete, or not written at all."""
        storage.write(path, "vocabulary", FORMAT_VERSION, self._header(), {"vectors": self.vectors})

    @staticmethod
    def load(path: str | Path) -> "Vocabulary":
        """Read a file that `save` wrote; any other file raises a FileError."""
        header, tensors = storage.read(path, "vocabulary", FORMAT_VERSION)
        names, dim, seed, system = header.get("names"), header.get("dim"), header.get("seed"), header.get("vsa")
        if (
            not (type(dim) is int and 1 <= dim <= MAX_DIM_IN_FILE and type(seed) is int and abs(seed) < 1 << 63)
            or not (isinstance(names, list) and all(isinstance(name, str) for name in names))
            or len(set(names)) != len(names)
            or not (isinstance(system, str) and system in SYSTEMS)
        ):
            raise FileError(f"{path} has an invalid vocabulary header; get it again")
        try:
            if header.get("large") is True:
                return LargeVocabulary(names, dim, seed)
            vectors = tensors.get("vectors")
            if vectors is None or vectors.shape != (len(names), dim) or vectors.dtype not in VECTOR_DTYPES:
                raise FileError(
                    f"{path} does not hold one vector of {dim} dimensions for each of its {len(names)} names"
                )
            if not storage.is_finite(vectors):
                raise FileError(f"{path} holds vectors with elements that are not finite")
            vocabulary = Vocabulary(dim, seed, SYSTEMS[system])
            for name, vector in zip(names, vectors, strict=True):
                vocabulary.add(name, vector)
        except (OptionError, ShapeError) as error:
            raise FileError(f"{path} holds an invalid vocabulary: {error}") from error
        return vocabulary

    def _header(self) -> dict[str, Any]:
        systems = [name for name, system in SYSTEMS.items() if system == self.vsa]
        if not systems:
            raise OptionError(f"save: only vocabularies of {', '.join(SYSTEMS)} can be saved, not {self.vsa!r}")
        return {"names": list(self), "dim": self.dim, "seed": self.seed, "vsa": systems[0]}

    def _draw(self, name: str) -> Tensor:
        digest = hashlib.blake2b(f"{self.seed}\0{name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        return self.vsa.random(1, self.dim, generator)[0]

    def _check_memory(self) -> None:
        """Refuse one more vector if it and its copies in computations cannot fit in memory."""
        n_vectors = len(self._vectors) + 1
        n_bytes = BYTES_PER_ELEMENT * self.dim * (n_vectors + WORKING_VECTORS)
        fits_memory(f"{n_vectors:,} vector(s) of {excerpt(self.dim)} dimensions", n_bytes, "take a smaller dim")

    def _known(self, name: str) -> Tensor:
        if name not in self:
            hint = self._hint(name, "use it in a statement first, or add it")
            raise UnknownNameError(f"{name!r} is not among the {len(self)} names of this vocabulary; {hint}")
        return self[name]

    def _hint(self, name: str, otherwise: str) -> str:
        """Close names for a mistyped one, or else what to do."""
        close = get_close_matches(name, list(itertools.islice(self, MAX_NAMES_FOR_HINTS)), n=3)
        return f"did you mean {' or '.join(close)}?" if close else otherwise

    def _key(self, key: "str | Tensor") -> Tensor:
        return self.parse(key, strict=True) if isinstance(key, str) else self._vector(key)

    def _vector(self, statement: "Tensor | Statement | str") -> Tensor:
        if isinstance(statement, str):
            return self.parse(statement)
        vector = statement.vector if isinstance(statement, Statement) else statement
        if vector.ndim == 0 or vector.shape[-1] != self.dim:
            raise ShapeError(
                f"a statement of this vocabulary has {self.dim} dimensions, got shape {tuple(vector.shape)}"
            )
        return vector

    def _check_side(self, statement: object, key: object) -> None:
        """Refuse a key that is only a left operand, where binding does not commute and both are text."""
        if self.vsa.commutative or not (isinstance(statement, str) and isinstance(key, str)):
            return
        if expression.is_only_left_operand(statement, key):
            raise OptionError(
                f"ask: {key!r:.60} is the right operand of no * in the statement, and {self.vsa!r} does not commute; "
                "write the key on the right (cat*red to ask red), or unbind a path one key at a time"
            )

    def _answers(self, unbound: Tensor, k: int) -> list[list[Answer]]:
        k = min(positive("ask", "k", k), len(self))
        if k == 0:
            raise UnknownNameError("this vocabulary has no names yet; use some in a statement, or add them")
        unbound_norms = algebra.finite("the answer", unbound.norm(dim=-1)).tolist()
        found = []
        for unbound_norm, (names, dots, norms) in zip(unbound_norms, self._nearest(unbound, k), strict=True):
            # All pairs contribute about the same square norm, so the square norm estimates their number.
            n_pairs = max(1, round((unbound_norm / norms[0]) ** 2)) if norms[0] else 1
            error = expected_error(self.dim, n_pairs, len(self) - 1)
            candidates = zip(names, dots, norms, strict=True)
            found.append([_answer(name, dot, norm, unbound_norm, self.dim, error) for name, dot, norm in candidates])
        return found

    def _nearest(self, unbound: Tensor, k: int) -> Iterator[tuple[list[str], list[float], list[float]]]:
        """For each row, the k most similar names, their dot products with the row, and the norms of their vectors."""
        vectors, names = self.vectors.detach(), list(self)
        norms = vectors.norm(dim=-1)
        best = algebra.similarity(unbound[:, None], vectors).topk(k, dim=-1).indices
        dots = unbound @ vectors.T
        for row, chosen in enumerate(best):
            yield [names[i] for i in chosen.tolist()], dots[row, chosen].tolist(), norms[chosen].tolist()


class LargeVocabulary(Vocabulary):
    """A fixed list of very many names whose vectors are not stored; clean-up among a million takes milliseconds.

    The vector of a name follows from its index i in the list. It is the vector of label i in an `OrbitCodebook`, a roll
    of one of a few base vectors, with its elements in a shuffled order that is the same for all names:

        c_i[k] = orbit_i[shuffle[k]]         <v, c_i> = <v[unshuffle], orbit_i>

    Hence a few inverse FFTs compare a vector with all names. The shuffle is necessary because rolls bind to rolls:
    without it, a_12 (x) a_34 would equal a_7 (x) a_39, and a query for one pair would be answered by another pair. The
    shuffled vectors have norm 1 but are not unitary, hence the approximate inverse; the noise increases only a little.

    Names that are not in the list can be used as roles, "capital*Paris": they get vectors as in a `Vocabulary`, and are
    never answers.
    """

    def __init__(self, names: Iterable[str], dim: int, seed: int = 0) -> None:
        super().__init__(dim, seed, HRR("approximate"))
        self._names = list(names)
        for name in self._names:
            _check_name(name)
        self._index = {name: i for i, name in enumerate(self._names)}
        if len(self._index) != len(self._names):
            raise OptionError(
                f"LargeVocabulary: names must be distinct, got {len(self._names) - len(self._index)} duplicates"
            )
        if not self._names:
            raise OptionError("LargeVocabulary: expects at least one name, got none")
        self._codebook = OrbitCodebook(len(self._names), dim, seed)
        self._shuffle = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))
        self._unshuffle = self._shuffle.argsort()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._index:
            return super().__getitem__(name)
        return self._codebook.vectors(torch.tensor([self._index[name]]))[0, self._shuffle]

    def add(self, name: str, vector: Tensor | None = None) -> None:
        raise OptionError(f"add: the names of a LargeVocabulary are fixed, got {name!r:.60}; v[name] creates a role")

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._index or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @property
    def vectors(self) -> Tensor:
        """All vectors, computed on each access. Shape: (n, d)"""
        return self._codebook.vectors(torch.arange(len(self)))[:, self._shuffle]

    def save(self, path: str | Path) -> None:
        """Write the names to a .safetensors file. Their vectors follow from the names and the seed."""
        storage.write(
            path, "vocabulary", FORMAT_VERSION, {**self._header(), "large": True}, {"vectors": torch.empty(0)}
        )

    def _draw(self, name: str) -> Tensor:
        return algebra.unitary(super()._draw(name))  # unitary roles unbind exactly

    def _nearest(self, unbound: Tensor, k: int) -> Iterator[tuple[list[str], list[float], list[float]]]:
        scores, indices = self._codebook.top_k(unbound[:, self._unshuffle], k)
        for row in range(len(unbound)):
            yield [self._names[i] for i in indices[row].tolist()], scores[row].tolist(), [1.0] * k


def _answer(name: str, dot: float, norm: float, unbound_norm: float, dim: int, error: float) -> Answer:
    if norm == 0 or unbound_norm == 0:
        return Answer(name, 0.0, 0.0, 0.5, error)
    response = dot / norm**2
    # The component of the unbound vector orthogonal to the candidate is noise. The candidate's direction carries 1/d of
    # the square norm of such noise.
    variance = max((unbound_norm / norm) ** 2 - response**2, 0) / dim
    odds = (response - PRESENT_THRESHOLD) / variance if variance else (response - PRESENT_THRESHOLD) * 1e9
    confidence = 1 / (1 + exp(-odds)) if odds > -700 else 0.0
    return Answer(name, dot / (norm * unbound_norm), response, confidence, error)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise OptionError(f"a name must be 1 to {MAX_NAME_CHARACTERS} printable characters, got {str(name)[:40]!r}")
