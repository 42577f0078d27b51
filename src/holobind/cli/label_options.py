"""Options of `holobind predict` that decide which labels a row gets, and the predictions they make."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.errors import DataError, OptionError

if TYPE_CHECKING:
    from holobind.model import Model

Prediction = dict[str, Any]
NO_KNOWN_WORD, NO_FEATURES = "no known word", "no features"
MAX_LIST_BYTES = 1 << 26  # of a file of labels

Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Label that may not be predicted; repeat it, or give @FILE with a label a line.", metavar="LABEL"
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Label that may be predicted, and no other; repeat it, or give @FILE.", metavar="LABEL"),
]


@dataclass(frozen=True)
class LabelOptions:
    """Which labels a row gets.

    objective         choose the number of labels by it, and not by k; None: k labels
    min_probability   leave out labels below it
    probabilities     whether predictions have them; None: where the model is calibrated
    exclude, only     as in `Model.rank`
    """

    objective: str | None = None
    min_probability: float = 0.0
    probabilities: bool | None = None
    exclude: Sequence[str] = field(default=())
    only: Sequence[str] | None = None

    def check(self, model: "Model") -> None:
        """Raise an OptionError or LabelError before any input is read."""
        from holobind.label_filter import allowed_labels
        from holobind.label_sets import Objective
        from holobind.predictions import NO_CALIBRATION

        allowed_labels(model.n_labels, model.label_names, self.exclude, self.only, model.allowed)
        if self.objective is not None:
            Objective.parse(self.objective)
        if model.calibration is None and (self.objective or self.min_probability or self.probabilities):
            raise OptionError(NO_CALIBRATION)


def predict_labels(
    model: "Model", inputs: Any, k: int, names: bool, threshold: float, options: LabelOptions
) -> list[Prediction]:
    """The predictions of rows or texts, as JSON values, labels with the highest scores first.

    A row without any word or feature that the model knows has no labels, and says so.
    """
    from holobind.label_filter import allowed_labels

    examples = model.examples(inputs)
    nothing: Prediction = {"labels": [], "unknown": NO_KNOWN_WORD if isinstance(inputs, list) else NO_FEATURES}
    filters: dict[str, Any] = {"exclude": options.exclude, "only": options.only}
    if options.objective is None:
        allowed = allowed_labels(model.n_labels, model.label_names, **filters, before=model.allowed)
        n_allowed = model.n_labels if allowed is None else int(allowed.sum())
        ranking = model.rank(examples, min(k, n_allowed), **filters)
    else:
        ranking = model.choose(examples, options.objective, **filters)
    label_names = model.label_names if names else None
    scores, ids, p = ranking.scores.tolist(), ranking.ids.tolist(), ranking.probabilities
    probabilities = [[None] * len(row) for row in ids] if p is None else p.tolist()
    shown = options.probabilities is not False
    return [
        dict(nothing)
        if is_empty
        else {
            "labels": [
                {
                    "label": label if label_names is None else label_names[label],
                    "score": round(score, 6),
                    **({} if probability is None or not shown else {"probability": round(probability, 4)}),
                }
                for score, label, probability in zip(*row, strict=True)
                if label >= 0 and score > threshold and (probability is None or probability >= options.min_probability)
            ]
        }
        for is_empty, *row in zip(examples.empty_rows().tolist(), scores, ids, probabilities, strict=True)
    ]


def read_labels(values: Sequence[str] | None) -> list[str] | None:
    """Labels as given to a repeated option; of @FILE, its lines."""
    if not values:
        return None
    labels: list[str] = []
    for value in values:
        if not value.startswith("@"):
            labels.append(value)
            continue
        path = Path(value[1:])
        try:
            with path.open("rb") as file:
                content = file.read(MAX_LIST_BYTES + 1)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}; a label that starts with @ goes into a file") from error
        if len(content) > MAX_LIST_BYTES:
            raise DataError(f"{path} has more than {MAX_LIST_BYTES:,} bytes; is this a list of labels?")
        try:
            labels += [line for line in content.decode("utf-8-sig").splitlines() if line]
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text ({error.reason})") from error
    return labels
