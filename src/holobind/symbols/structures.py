"""Bags, records, sequences, stacks and trees in one vector, each a few lines of algebra.

Every structure encodes Python values into a statement of a vocabulary and decodes the statement again. It decodes to
`Answer`s: the `error` of an answer is the probability that crosstalk ranked a wrong name first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from holobind import algebra
from holobind.errors import OptionError
from holobind.symbols import expression
from holobind.symbols.vocabulary import Answer, Vocabulary
from holobind.symbols.vsa import HRR, UnitaryHRR

Nested: TypeAlias = "str | Mapping[str, Nested]"
Branches: TypeAlias = "str | tuple[Branches, Branches]"
Decoded: TypeAlias = "Answer | tuple[Decoded, Decoded]"


@dataclass(frozen=True)
class Bag:
    """A multiset of names: S = cat + cat + dog."""

    vocabulary: Vocabulary

    def encode(self, names: Iterable[str]) -> Tensor:
        """The sum of the names' vectors."""
        return sum((self.vocabulary[name] for name in names), start=torch.zeros(self.vocabulary.dim))

    def decode(self, statement: Tensor, k: int = 100) -> list[Answer]:
        """The names in the bag, at most k; the count of a name is `round(answer.response)`."""
        return [answer for answer in self.vocabulary.clean_up(statement, k) if answer.present]


@dataclass(frozen=True)
class Record:
    """Role-filler pairs, with nested records as fillers: S = Jane*name + (cat*kind + red*colour)*pet.

    Commutative binding ignores order: the paths pet*kind and kind*pet are equal, so use a role at one depth only. VTB
    does not commute; the role is the right operand, which can be unbound, but nested records cannot be decoded.
    """

    vocabulary: Vocabulary

    def encode(self, fillers: Mapping[str, Nested]) -> Tensor:
        """The sum of all fillers, each bound with its role."""
        total = torch.zeros(self.vocabulary.dim)
        for role, filler in fillers.items():
            value = self.vocabulary[filler] if isinstance(filler, str) else self.encode(filler)
            total = total + self.vocabulary.vsa.bind(value, self.vocabulary[role])
        return total

    def decode(self, statement: Tensor, *paths: str) -> dict[str, Answer]:
        """The most likely filler of each role; "pet*colour" is the path of a role in a nested record."""
        for path in paths:
            if not self.vocabulary.vsa.commutative and len(expression.names(path)) > 1:
                raise OptionError(
                    f"Record: the path {path!r:.60} cannot be unbound: {self.vocabulary.vsa!r} does not commute; "
                    "unbind one role at a time with vocabulary.vsa.unbind"
                )
        return {path: self.vocabulary.ask(statement, path, k=1)[0] for path in paths}


@dataclass(frozen=True)
class Sequence:
    """Names in order: S = p*a + p^2*b + p^3*c, where p is the position symbol."""

    vocabulary: Vocabulary

    def encode(self, names: Iterable[str]) -> Tensor:
        """The sum of all names, each bound with its position, counted from 1."""
        total = torch.zeros(self.vocabulary.dim)
        for position, name in enumerate(names, 1):
            total = total + algebra.bind(self.vocabulary[name], self._position(position))
        return total

    def decode(self, statement: Tensor, length: int | None = None) -> list[Answer]:
        """The name at each position; without `length`, up to the first position where no name is present."""
        found: list[Answer] = []
        while length is None or len(found) < length:
            unbound = algebra.unbind(statement, self._position(len(found) + 1))
            answer = self.vocabulary.clean_up(unbound, 1)[0]
            if length is None and (not answer.present or len(found) >= self.vocabulary.dim):
                break
            found.append(answer)
        return found

    def _position(self, position: int) -> Tensor:
        return algebra.power(_role(self.vocabulary, "place"), position)  # "place" seeds the vector: do not rename it


@dataclass(frozen=True)
class Stack:
    """A last-in, first-out stack: push(S, a) = a + p*S."""

    vocabulary: Vocabulary

    def empty(self) -> Tensor:
        """The empty stack: the zero vector."""
        return torch.zeros(self.vocabulary.dim)

    def push(self, stack: Tensor, name: str) -> Tensor:
        """The stack with a name on top."""
        return self.vocabulary[name] + algebra.bind(stack, _role(self.vocabulary, "below"))

    def pop(self, stack: Tensor) -> tuple[Answer, Tensor]:
        """The name on top and the remaining stack; the answer of an empty stack is not `present`."""
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
    """A binary tree: ("a", ("b", "c")) is left_1*a + right_1*(left_2*b + right_2*c).

    Every depth has its own side symbols, because binding commutes: with the same two symbols at all depths, the paths
    right, left and left, right would be equal.
    """

    vocabulary: Vocabulary

    def encode(self, tree: Branches, depth: int = 1) -> Tensor:
        """The vector of a leaf, or the sum of both branches, each bound with its side."""
        if isinstance(tree, str):
            return self.vocabulary[tree]
        if len(tree) != 2:
            raise OptionError(f"Tree: a branch must have two sides, got {len(tree)}")
        left, right = (self.encode(branch, depth + 1) for branch in tree)
        return algebra.bind(left, self._side("left", depth)) + algebra.bind(right, self._side("right", depth))

    def decode(self, statement: Tensor, max_depth: int = 8, depth: int = 1) -> Decoded:
        """The tree, at most `max_depth` deep, as nested pairs of answers: where a name is present, there is a leaf."""
        answer = self.vocabulary.clean_up(statement, 1)[0]
        if answer.present or depth > max_depth:
            return answer
        left, right = (algebra.unbind(statement, self._side(side, depth)) for side in ("left", "right"))
        return self.decode(left, max_depth, depth + 1), self.decode(right, max_depth, depth + 1)

    def ask(self, statement: Tensor, *sides: str) -> Answer:
        """The leaf at the end of a path such as "right", "left"."""
        for depth, side in enumerate(sides, 1):
            if side not in ("left", "right"):
                raise OptionError(f"Tree: a side must be 'left' or 'right', got {side!r}")
            statement = algebra.unbind(statement, self._side(side, depth))
        return self.vocabulary.clean_up(statement, 1)[0]

    def _side(self, side: str, depth: int) -> Tensor:
        return _role(self.vocabulary, f"{side} {depth}")


def _role(vocabulary: Vocabulary, name: str) -> Tensor:
    """A unitary symbol that belongs to the structure. It is no name of the vocabulary, so it is never an answer."""
    if not isinstance(vocabulary.vsa, HRR | UnitaryHRR):
        system = type(vocabulary.vsa).__name__
        raise OptionError(
            f"sequences, stacks and trees need a vocabulary of an HRR system; the vsa of this one is {system}"
        )
    return algebra.unitary(vocabulary._draw(f"\0{name}"))
