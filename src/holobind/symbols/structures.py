"""Bags, records, sequences, stacks and trees in one vector: a few lines of algebra each.

Every structure encodes Python values into a statement of a vocabulary and decodes it again. What it decodes are
`Answer`s: each carries the probability, by the noise law, that a wrong name came first (`error`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from holobind import algebra
from holobind.errors import OptionError
from holobind.symbols.vocabulary import Answer, Vocabulary
from holobind.symbols.vsa import HRR, UnitaryHRR

Nested: TypeAlias = "str | Mapping[str, Nested]"
Branches: TypeAlias = "str | tuple[Branches, Branches]"
Decoded: TypeAlias = "Answer | tuple[Decoded, Decoded]"


@dataclass(frozen=True)
class Bag:
    """Names with counts: S = cat + cat + dog."""

    vocabulary: Vocabulary

    def encode(self, names: Iterable[str]) -> Tensor:
        """The sum of the names' vectors."""
        return sum((self.vocabulary[name] for name in names), start=torch.zeros(self.vocabulary.dim))

    def decode(self, statement: Tensor, k: int = 100) -> list[Answer]:
        """The names that are in it, at most k; `round(answer.response)` is how often."""
        return [answer for answer in self.vocabulary.clean_up(statement, k) if answer.present]


@dataclass(frozen=True)
class Record:
    """Roles with fillers, and records within records: S = name*Jane + pet*(kind*cat + colour*red).

    Binding does not know order: pet*kind and kind*pet are one path, so use a role at one depth only.
    """

    vocabulary: Vocabulary

    def encode(self, fillers: Mapping[str, Nested]) -> Tensor:
        """The sum of every role bound with its filler."""
        total = torch.zeros(self.vocabulary.dim)
        for role, filler in fillers.items():
            value = self.vocabulary[filler] if isinstance(filler, str) else self.encode(filler)
            total = total + self.vocabulary.vsa.bind(value, self.vocabulary[role])
        return total

    def decode(self, statement: Tensor, *paths: str) -> dict[str, Answer]:
        """The most likely filler of each role; an inner role is reached by its path, "pet*colour"."""
        return {path: self.vocabulary.ask(statement, path, k=1)[0] for path in paths}


@dataclass(frozen=True)
class Sequence:
    """Names in order: S = p*a + p^2*b + p^3*c, with p the symbol of a place."""

    vocabulary: Vocabulary

    def encode(self, names: Iterable[str]) -> Tensor:
        """The sum of every name bound with its place, counted from 1."""
        total = torch.zeros(self.vocabulary.dim)
        for place, name in enumerate(names, 1):
            total = total + algebra.bind(self.vocabulary[name], self._place(place))
        return total

    def decode(self, statement: Tensor, length: int | None = None) -> list[Answer]:
        """The name at each place; without a length, up to the first place that seems empty."""
        found: list[Answer] = []
        while length is None or len(found) < length:
            place = algebra.unbind(statement, self._place(len(found) + 1))
            answer = self.vocabulary.clean_up(place, 1)[0]
            if length is None and (not answer.present or len(found) >= self.vocabulary.dim):
                break
            found.append(answer)
        return found

    def _place(self, place: int) -> Tensor:
        return algebra.power(_role(self.vocabulary, "place"), place)


@dataclass(frozen=True)
class Stack:
    """Last in, first out: push(S, a) = a + p*S."""

    vocabulary: Vocabulary

    def empty(self) -> Tensor:
        """A stack with nothing on it."""
        return torch.zeros(self.vocabulary.dim)

    def push(self, stack: Tensor, name: str) -> Tensor:
        """The stack with a name on top."""
        return self.vocabulary[name] + algebra.bind(stack, _role(self.vocabulary, "below"))

    def pop(self, stack: Tensor) -> tuple[Answer, Tensor]:
        """The name on top and the stack below it; an empty stack answers with a name that is not `present`."""
        top = self.vocabulary.clean_up(stack, 1)[0]
        rest = stack - self.vocabulary[top.name] if top.present else stack
        return top, algebra.unbind(rest, _role(self.vocabulary, "below"))

    def encode(self, names: Iterable[str]) -> Tensor:
        """A stack of names, the last one on top."""
        stack = self.empty()
        for name in names:
            stack = self.push(stack, name)
        return stack

    def decode(self, stack: Tensor) -> list[Answer]:
        """The names from the bottom to the top."""
        found: list[Answer] = []
        while len(found) < self.vocabulary.dim:
            top, stack = self.pop(stack)
            if not top.present:
                break
            found.append(top)
        return found[::-1]


@dataclass(frozen=True)
class Tree:
    """Pairs within pairs: ("a", ("b", "c")) is left_1*a + right_1*(left_2*b + right_2*c).

    Every depth has sides of its own, because binding does not know order: with one left and one right for all, the
    right of the left and the left of the right would be the same place.
    """

    vocabulary: Vocabulary

    def encode(self, tree: Branches, depth: int = 1) -> Tensor:
        """The vector of a leaf, or of both branches under their sides."""
        if isinstance(tree, str):
            return self.vocabulary[tree]
        if len(tree) != 2:
            raise OptionError(f"Tree: a branch has two sides, got {len(tree)}")
        left, right = (self.encode(branch, depth + 1) for branch in tree)
        return algebra.bind(left, self._side("left", depth)) + algebra.bind(right, self._side("right", depth))

    def decode(self, statement: Tensor, most: int = 8, depth: int = 1) -> Decoded:
        """The tree, at most so deep, as nested pairs of answers: what responds to a name is a leaf."""
        answer = self.vocabulary.clean_up(statement, 1)[0]
        if answer.present or depth > most:
            return answer
        left, right = (algebra.unbind(statement, self._side(side, depth)) for side in ("left", "right"))
        return self.decode(left, most, depth + 1), self.decode(right, most, depth + 1)

    def ask(self, statement: Tensor, *sides: str) -> Answer:
        """The leaf at the end of a path such as "right", "left"."""
        for depth, side in enumerate(sides, 1):
            if side not in ("left", "right"):
                raise OptionError(f"Tree: a side is 'left' or 'right', got {side!r}")
            statement = algebra.unbind(statement, self._side(side, depth))
        return self.vocabulary.clean_up(statement, 1)[0]

    def _side(self, side: str, depth: int) -> Tensor:
        return _role(self.vocabulary, f"{side} {depth}")


def _role(vocabulary: Vocabulary, name: str) -> Tensor:
    """A unitary symbol of the structure itself: it is no name of the vocabulary, so it is never an answer."""
    if not isinstance(vocabulary.vsa, HRR | UnitaryHRR):
        system = type(vocabulary.vsa).__name__
        raise OptionError(f"sequences, stacks and trees need powers and exact keys of HRR; this vocabulary is {system}")
    return algebra.unitary(vocabulary._drawn(f"\0{name}"))
