"""A conversation with one statement: say something, ask about it. The lines go in, the text to show comes out."""

import json
from dataclasses import asdict, dataclass, field

from torch import Tensor

from holobind.errors import HolobindError
from holobind.symbols import expression
from holobind.symbols.vocabulary import Answer, Vocabulary

HELP = """\
red*cat + blue*dog     say it: * binds, + adds up, ~ inverts, brackets nest
red?                   ask what goes with red; paths too: first*name?
has red*cat            ask whether the statement holds a part
names                  the names so far
save FILE              write the names and their vectors
quit"""


@dataclass
class Conversation:
    """What was said last, in a vocabulary; `reply` takes a line and gives the text to show."""

    vocabulary: Vocabulary
    k: int = 5
    as_json: bool = False
    statement: Tensor | None = field(default=None, repr=False)

    def say(self, text: str) -> str:
        """Make `text` the statement."""
        self.statement = self.vocabulary.parse(text)
        names = expression.names(text)
        return self._shown({"names": names}, f"{len(names)} names in {self.vocabulary.dim} numbers: {', '.join(names)}")

    def ask(self, query: str) -> str:
        """What goes with `query`, a bar for every candidate."""
        answers = self.vocabulary.ask(self._said(), query, self.k)
        data = [{**asdict(answer), "present": answer.present} for answer in answers]
        return self._shown({"query": query, "answers": data}, bars(answers))

    def has(self, part: str) -> str:
        """Whether the statement holds `part`."""
        response = float(self.vocabulary.response(self._said(), part))
        held = self.vocabulary.contains(self._said(), part)
        return self._shown(
            {"part": part, "response": response, "present": held},
            f"{'yes' if held else 'no'}: the response is {response:.2f}, above 0.5 means present",
        )

    def reply(self, line: str) -> str | None:
        """The answer to a line of conversation; None to end it. A mistake is told, and nothing is lost."""
        line = line.strip()
        command, _, rest = line.partition(" ")
        try:
            if line in ("quit", "exit"):
                return None
            if line in ("", "help"):
                return HELP
            if line == "names":
                return ", ".join(self.vocabulary) or "none yet"
            if command == "has" and rest:
                return self.has(rest)
            if command == "save" and rest:
                self.vocabulary.save(rest)
                return f"{len(self.vocabulary)} names written to {rest}"
            return self.ask(line[:-1]) if line.endswith("?") else self.say(line)
        except HolobindError as error:
            return str(error)

    def _said(self) -> Tensor:
        if self.statement is None:
            raise HolobindError("nothing has been said yet; start with a statement such as red*cat + blue*dog")
        return self.statement

    def _shown(self, data: dict[str, object], text: str) -> str:
        return json.dumps(data) if self.as_json else text


def bars(answers: list[Answer], width: int = 32) -> str:
    """A line for every candidate: name, bar of its similarity, and what the numbers mean."""
    longest = max(len(answer.name) for answer in answers)
    lines = []
    for answer in answers:
        bar = "█" * round(max(answer.similarity, 0) * width)
        lines.append(
            f"{answer.name:<{longest}}  {bar:<{width}}  similarity {answer.similarity:+.2f}  "
            f"response {answer.response:+.2f}  P(present) {answer.confidence:.0%}"
        )
    lines.append(f"chance that noise puts a wrong name first: {answers[0].error:.1%}")
    return "\n".join(lines)
