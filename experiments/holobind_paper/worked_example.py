"""The examples of the paper's text and appendix at work: the dog and its parts, and Jane and Joe.

Every question is asked of many vocabularies, each with vectors of its own. The response to a true answer has mean 1,
to any other mean 0, and the noise law gives its spread: sqrt((n - 1) / d) and sqrt(n / d) for n pairs in d numbers.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import holobind as hb
from holobind_paper import result

D, VOCABULARIES = 512, 100
DOG = "l*legs + h*(e*eyes + n*nose + m*mouth)"
PEOPLE = "first*(name*Jane + age*30) + second*(name*Joe + age*33)"
PAIRS = 4  # in each statement: one for each of its leaves


@dataclass(frozen=True)
class Question:
    """`key` unbinds, `answer` is compared with what is left; `true` says whether the statement holds it there."""

    text: str
    statement: str
    key: str
    answer: str
    true: bool


QUESTIONS = (
    Question("do dogs have legs?", DOG, "l", "legs", True),
    Question("do dogs have wings for legs?", DOG, "l", "wings", False),
    Question("do dogs' heads have eyes?", DOG, "h*e", "eyes", True),
    Question("do dogs' heads have a nose?", DOG, "h*n", "nose", True),
    Question("do dogs' heads have a mouth?", DOG, "h*m", "mouth", True),
    Question("is the nose where the eyes are?", DOG, "h*e", "nose", False),
    Question("do dogs have eyes, without saying where?", DOG, "e", "eyes", False),
    Question("is the first one's name Jane?", PEOPLE, "first*name", "Jane", True),
    Question("is the first one's name Joe?", PEOPLE, "first*name", "Joe", False),
    Question("is the first one's age 30?", PEOPLE, "first*age", "30", True),
    Question("is the second one's name Joe?", PEOPLE, "second*name", "Joe", True),
    Question("is the second one's age 33?", PEOPLE, "second*age", "33", True),
)


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Ask every question of a hundred vocabularies, show the numbers and draw the trees."""
    started = time.monotonic()
    count = 10 if quick else VOCABULARIES
    found: list[list[tuple[float, bool]]] = [[] for _ in QUESTIONS]
    with result.progress("worked example", count) as advance:
        for i in range(count):
            vocabulary = hb.Vocabulary(D, seed + i)
            statements = {text: vocabulary.parse(text) for text in (DOG, PEOPLE)}
            vocabulary["wings"]  # a name that no statement uses
            for place, question in enumerate(QUESTIONS):
                answers = vocabulary.ask(statements[question.statement], question.key, k=len(vocabulary))
                response = next(answer.response for answer in answers if answer.name == question.answer)
                found[place].append((response, answers[0].name == question.answer))
            advance()
    rows = []
    for question, asked in zip(QUESTIONS, found, strict=True):
        responses = [response for response, _ in asked]
        rows.append(
            {
                "question": question.text,
                "statement": "dog" if question.statement == DOG else "people",
                "key": question.key,
                "answer": question.answer,
                "true": question.true,
                "first_seed": responses[0],
                "mean": fmean(responses),
                "std": pstdev(responses),
                "law_std": ((PAIRS - question.true) / D) ** 0.5,
                "comes_first": fmean(first for _, first in asked),
            }
        )
    told = fmean(
        (response > 0.5) == question.true for question, a in zip(QUESTIONS, found, strict=True) for response, _ in a
    )
    shallow = next(row for row in rows if row["key"] == "e")
    deep = next(row for row in rows if row["key"] == "h*e" and row["true"])
    return result.save(
        out,
        "worked-example",
        _draw(rows),
        started,
        seed=seed,
        quick=quick,
        trials=count,
        dim=D,
        title="Worked example (appendix): the dog, and Jane and Joe",
        told_apart=told,
        summary=f"{100 * told:.1f} % of the answers on the right side of one half, over {count} vocabularies",
        notes=[
            f"Dog = {DOG};  S = {PEOPLE};  d = {D}. A response is the dot product of the answer's vector with what "
            f"unbinding the key leaves; mean and standard deviation over {count} vocabularies.",
            "The paper says that eyes can also be asked for by their own key e, without the head's h, only with a "
            f"weaker response. It is no response at all: {shallow['mean']:+.2f} +- {shallow['std']:.2f} with e alone, "
            f"{deep['mean']:+.2f} +- {deep['std']:.2f} with h and e. What e alone leaves is the eyes still bound with "
            "h, a vector that is similar to nothing.",
        ],
        table=_table(rows),
        rows=rows,
    )


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["question", "key", "answer", "response, first seed", "mean +- std", "std by the law", "comes first"]
    return result.table(
        header,
        [
            [
                row["question"],
                row["key"],
                row["answer"],
                f"{row['first_seed']:+.2f}",
                f"{row['mean']:+.2f} +- {row['std']:.2f}",
                f"{row['law_std']:.2f}",
                f"{100 * row['comes_first']:.0f} %",
            ]
            for row in rows
        ],
    )


# Where the names stand in the drawing, and what each hangs from; the word on the line is the key.
DOG_TREE = {
    "Dog": (0.35, 0.9, None, ""),
    "legs": (0.1, 0.5, "Dog", "l"),
    "head": (0.6, 0.5, "Dog", "h"),
    "eyes": (0.3, 0.1, "head", "e"),
    "nose": (0.6, 0.1, "head", "n"),
    "mouth": (0.9, 0.1, "head", "m"),
}
PEOPLE_TREE = {
    "S": (0.5, 0.9, None, ""),
    "·": (0.25, 0.5, "S", "first"),
    "· ": (0.75, 0.5, "S", "second"),
    "Jane": (0.1, 0.1, "·", "name"),
    "30": (0.4, 0.1, "·", "age"),
    "Joe": (0.6, 0.1, "· ", "name"),
    "33": (0.9, 0.1, "· ", "age"),
}


def _draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, width_ratios=(1, 1.2))
    for (left, right), statement, tree in zip(panels, ("dog", "people"), (DOG_TREE, PEOPLE_TREE), strict=True):
        _draw_tree(left, tree)
        left.set_title(f"{'Dog' if statement == 'dog' else 'S'} = {DOG if statement == 'dog' else PEOPLE}", fontsize=8)
        asked = [row for row in rows if row["statement"] == statement][::-1]
        colours = ["tab:orange" if row["true"] else "tab:blue" for row in asked]
        means, spreads = ([row[key] for row in asked] for key in ("mean", "std"))
        right.barh(range(len(asked)), means, xerr=spreads, color=colours, alpha=0.8)
        right.set_yticks(
            range(len(asked)), [f"{row['question']}\n<{row['answer']}, {row['key']}>" for row in asked], fontsize=7
        )
        right.axvline(0.5, color="black", lw=0.8, ls="--")
        right.set_xlim(-0.4, 1.4)
        right.set_xlabel("response, mean and std; dashed: one half, the rule", fontsize=8)
    figure.suptitle(f"Trees of symbols in {D} numbers each, and questions to them")
    return figure


def _draw_tree(axes: Any, tree: dict[str, tuple[float, float, str | None, str]]) -> None:
    for name, (x, y, parent, key) in tree.items():
        if parent is not None:
            above = tree[parent]
            axes.plot([above[0], x], [above[1], y], color="grey", zorder=1)
            axes.text(
                (above[0] + x) / 2, (above[1] + y) / 2, key, color="tab:red", ha="center", backgroundcolor="white"
            )
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "black"}
        axes.text(x, y, name, ha="center", va="center", bbox=box, zorder=2)
    axes.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
    axes.axis("off")
