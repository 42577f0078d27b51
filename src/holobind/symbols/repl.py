"""An interactive session about one statement: a line of input goes in, the text to print comes out."""

import json
from dataclasses import asdict, dataclass, field

from holobind.errors import HolobindError
from holobind.symbols import expression
from holobind.symbols.vocabulary import PRESENT_THRESHOLD, Answer, Vocabulary

HELP = """\
red*cat + blue*dog     set the statement: * binds, + and - add, ~ inverts, brackets nest
red?                   query: what is bound with red? A path works, too: first*name?
has red*cat            test whether the statement contains red*cat
names                  list the names
save FILE              write the names and their vectors to a file
quit"""


@dataclass
class Session:
    """A vocabulary and the current statement; `reply` takes a line and returns the text to print."""

    vocabulary: Vocabulary
    k: int = 5
    as_json: bool = False
    statement: str | None = field(default=None, repr=False)

    def set_statement(self, text: str) -> str:
        """Make `text` the current statement."""
        self.vocabulary.parse(text)
        self.statement = text
        names = expression.names(text)
        summary = f"{len(names)} names in {self.vocabulary.dim} dimensions: {', '.join(names)}"
        return self._output({"names": names}, summary)

    def ask(self, query: str) -> str:
        """What is bound with `query`, with a bar for every candidate."""
        answers = self.vocabulary.ask(self._current(), query, self.k)
        data = [{**asdict(answer), "present": answer.present} for answer in answers]
        return self._output({"query": query, "answers": data}, bars(answers))

    def has(self, part: str) -> str:
        """Whether the statement contains `part`."""
        response = float(self.vocabulary.response(self._current(), part))
        present = response > PRESENT_THRESHOLD
        return self._output(
            {"part": part, "response": response, "present": present},
            f"{'yes' if present else 'no'}: the response is {response:.2f}, above {PRESENT_THRESHOLD} means present",
        )

    def reply(self, line: str) -> str | None:
        """The reply to a line of input; None ends the session. An error is part of the reply and changes nothing."""
        line = line.strip()
        command, _, argument = line.partition(" ")
        try:
            if line in ("quit", "exit"):
                return None
            if line in ("", "help"):
                return HELP
            if line == "names":
                return ", ".join(self.vocabulary) or "no names yet"
            if command == "has" and argument:
                return self.has(argument)
            if command == "save" and argument:
                self.vocabulary.save(argument)
                return f"{len(self.vocabulary)} names written to {argument}"
            return self.ask(line[:-1]) if line.endswith("?") else self.set_statement(line)
        except HolobindError as error:
            return str(error)

    def _current(self) -> str:
        if self.statement is None:
            raise HolobindError("there is no statement yet; enter one first, such as red*cat + blue*dog")
        return self.statement

    def _output(self, data: dict[str, object], text: str) -> str:
        return json.dumps(data) if self.as_json else text


def bars(answers: list[Answer], width: int = 32) -> str:
    """One line per candidate: the name, a bar for its similarity, and the numbers. The last line is the error rate."""
    name_width = max(len(answer.name) for answer in answers)
    lines = []
    for answer in answers:
        bar = "█" * round(max(answer.similarity, 0) * width)
        lines.append(
            f"{answer.name:<{name_width}}  {bar:<{width}}  similarity {answer.similarity:+.2f}  "
            f"response {answer.response:+.2f}  P(present) {answer.confidence:.0%}"
        )
    lines.append(f"probability that noise ranks a wrong name first: {answers[0].error:.1%}")
    return "\n".join(lines)
