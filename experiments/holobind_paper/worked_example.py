"""The examples of the paper's text and appendix: the dog and its parts, and Jane and Joe.

Every query is repeated with many vocabularies, each with random vectors of its own. The response to a true answer has
mean 1, to any other mean 0. In theory its standard deviation is sqrt((n - 1) / d) for a true answer and sqrt(n / d) for
any other, for n pairs in a vector of dimension d.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import holobind as hb
from holobind_paper import result

DIM, VOCABULARIES, QUICK_VOCABULARIES = 512, 100, 10
DOG = "l*legs + h*(e*eyes + n*nose + m*mouth)"
PEOPLE = "first*(name*Jane + age*30) + second*(name*Joe + age*33)"
PAIRS = 4  # in each statement, one for each leaf


@dataclass(frozen=True)
class Query:
    """`key` is unbound from `statement`, and the result is compared with `answer`, which is `true` or not."""

    text: str
    statement: str
    key: str
    answer: str
    true: bool


QUERIES = (
    Query("do dogs have legs?", DOG, "l", "legs", True),
    Query("do dogs have wings for legs?", DOG, "l", "wings", False),
    Query("do dogs' heads have eyes?", DOG, "h*e", "eyes", True),
    Query("do dogs' heads have a nose?", DOG, "h*n", "nose", True),
    Query("do dogs' heads have a mouth?", DOG, "h*m", "mouth", True),
    Query("is the nose where the eyes are?", DOG, "h*e", "nose", False),
    Query("do dogs have eyes, without saying where?", DOG, "e", "eyes", False),
    Query("is the first one's name Jane?", PEOPLE, "first*name", "Jane", True),
    Query("is the first one's name Joe?", PEOPLE, "first*name", "Joe", False),
    Query("is the first one's age 30?", PEOPLE, "first*age", "30", True),
    Query("is the second one's name Joe?", PEOPLE, "second*name", "Joe", True),
    Query("is the second one's age 33?", PEOPLE, "second*age", "33", True),
)


def run(out: Path, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Run every query with a hundred vocabularies, and draw the trees and the responses."""
    started = time.monotonic()
    count = QUICK_VOCABULARIES if quick else VOCABULARIES
    found: list[list[tuple[float, bool]]] = [[] for _ in QUERIES]
    with result.progress("worked example", count) as advance:
        for i in range(count):
            vocabulary = hb.Vocabulary(DIM, seed + i)
            statements = {text: vocabulary.parse(text) for text in (DOG, PEOPLE)}
            vocabulary["wings"]  # a symbol that no statement contains
            for place, query in enumerate(QUERIES):
                answers = vocabulary.ask(statements[query.statement], query.key, k=len(vocabulary))
                response = next(answer.response for answer in answers if answer.name == query.answer)
                found[place].append((response, answers[0].name == query.answer))
            advance()
    rows = []
    for query, responded in zip(QUERIES, found, strict=True):
        responses = [response for response, _ in responded]
        rows.append(
            {
                "query": query.text,
                "statement": "dog" if query.statement == DOG else "people",
                "key": query.key,
                "answer": query.answer,
                "true": query.true,
                "first_seed": responses[0],
                "mean": fmean(responses),
                "std": pstdev(responses),
                "theory_std": ((PAIRS - query.true) / DIM) ** 0.5,
                "first_fraction": fmean(first for _, first in responded),
            }
        )
    correct = fmean(
        (response > 0.5) == query.true
        for query, responded in zip(QUERIES, found, strict=True)
        for response, _ in responded
    )
    shallow = next(row for row in rows if row["key"] == "e")
    deep = next(row for row in rows if row["key"] == "h*e" and row["true"])
    return result.save(
        out,
        "worked-example",
        draw(rows),
        started,
        seed=seed,
        quick=quick,
        trials=count,
        dim=DIM,
        title="Worked example (appendix): the dog, and Jane and Joe",
        correct_fraction=correct,
        summary=f"{100 * correct:.1f} % of the responses are on the correct side of 0.5, over {count} vocabularies",
        notes=[
            f"Dog = {DOG};  S = {PEOPLE};  d = {DIM}. A response is the dot product of the answer's vector with the "
            "result of unbinding the key from the statement. Mean and standard deviation are over "
            f"{count} vocabularies.",
            "The paper says that a query for the eyes also works with their own key e, without the head's h, with a "
            f"weaker response. There is no response: {shallow['mean']:+.2f} +- {shallow['std']:.2f} with e alone, "
            f"{deep['mean']:+.2f} +- {deep['std']:.2f} with h and e. Unbinding e alone leaves the eyes bound with h, a "
            "vector that is similar to no symbol.",
        ],
        table=_table(rows),
        rows=rows,
    )


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    header = ["query", "key", "answer", "response, first seed", "mean +- std", "std in theory", "ranked first"]
    return result.table(
        header,
        [
            [
                row["query"],
                row["key"],
                row["answer"],
                f"{row['first_seed']:+.2f}",
                f"{row['mean']:+.2f} +- {row['std']:.2f}",
                f"{row['theory_std']:.2f}",
                f"{100 * row['first_fraction']:.0f} %",
            ]
            for row in rows
        ],
    )


# Name: x, y, parent, key on the line to the parent.
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


def draw(rows: list[dict[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, width_ratios=(1, 1.2))
    for (left, right), statement, tree in zip(panels, ("dog", "people"), (DOG_TREE, PEOPLE_TREE), strict=True):
        _draw_tree(left, tree)
        left.set_title(f"{'Dog' if statement == 'dog' else 'S'} = {DOG if statement == 'dog' else PEOPLE}", fontsize=8)
        queried = [row for row in rows if row["statement"] == statement][::-1]
        colours = ["tab:orange" if row["true"] else "tab:blue" for row in queried]
        means, spreads = ([row[key] for row in queried] for key in ("mean", "std"))
        right.barh(range(len(queried)), means, xerr=spreads, color=colours, alpha=0.8)
        right.set_yticks(
            range(len(queried)), [f"{row['query']}\n<{row['answer']}, {row['key']}>" for row in queried], fontsize=7
        )
        right.axvline(0.5, color="black", lw=0.8, ls="--")
        right.set_xlim(-0.4, 1.4)
        right.set_xlabel("response (dot product), mean ± one std; dashed: the threshold 0.5", fontsize=8)
    figure.suptitle(f"Two trees of symbols, each in one vector of d = {DIM}, and the responses to queries")
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
