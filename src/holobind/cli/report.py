"""`holobind report`: how good each label is, which labels are confused, and which rows are hardest, as one page."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind import _html as html
from holobind._checks import printable
from holobind._files import atomic_write, write_errors
from holobind.cli.arguments import (
    Data,
    EncoderPlace,
    Format,
    Json,
    LabelField,
    LabelNames,
    LabelSeparator,
    MaxUncompressed,
    ModelFile,
    Quiet,
    TextField,
    load_for,
)
from holobind.cli.terminal import print_json, print_rich, progress
from holobind.errors import FileError

if TYPE_CHECKING:
    from holobind.data import Split
    from holobind.label_report import LabelReport
    from holobind.label_sets import Ranking
    from holobind.metrics import Evaluation
    from holobind.model import Model

app = typer.Typer()

SHOWN_LABELS, SHOWN_CONFUSIONS, SHOWN_ROWS = 100, 50, 50  # of the page; the CSV files have all, or as many as they say
MAX_CSV_ROWS = 1000  # of the hardest rows
MAX_TEXT_CHARACTERS = 300
FILES = ("index.html", "labels.csv", "confusion.csv", "rows.csv", "labels.png", "reliability.png")


@app.command()
def report(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(help="Directory of the report; it may exist if it holds nothing but one.")],
    objective: Annotated[str, typer.Option(help="What label sets are chosen by, as in `predict --auto`.")] = "micro-f1",
    encoder: EncoderPlace = None,
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    label_names: LabelNames = None,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a report of each label, of confused labels and of the hardest rows.

    The directory gets a page that opens without a network, index.html, and its
    tables as CSV files. The rows are those of the test split, or all rows.

    Examples:

        holobind report model.safetensors bibtex --out report

        holobind report model.safetensors new.jsonl --out report --objective precision=0.8
    """
    import holobind as hb
    from holobind.label_report import label_report

    _check_directory(out)
    loaded = hb.load(model, encoder=encoder)
    with progress() as show:
        dataset, split = load_for(
            loaded,
            data,
            show,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            max_uncompressed=max_uncompressed,
        )
        examples = loaded.examples(loaded.inputs_of(split), cache=True, on_progress=show)
        evaluation = loaded.evaluate(split, label_names=dataset.label_names, dataset=dataset.name, on_progress=show)
        Y, names = loaded.labels_of(split, dataset.label_names)
        ranking, chosen = loaded.candidates(examples, objective, on_progress=show)
        show("writing the report", 0.0)
        found = label_report(ranking, chosen, Y)
        page = _Page(loaded, dataset.name, split, Y, names, ranking, chosen, evaluation, found, objective)
        page.write(out)
    summary = {"path": str(out), "rows": evaluation.n_rows, **evaluation.sets, "labels": int((found.support > 0).sum())}
    if as_json:
        print_json(summary)
    else:
        print_rich(f"{out / 'index.html'}: {evaluation.n_rows:,} rows, {summary['labels']:,} labels that occur in them")


class _Page:
    """The files of a report."""

    def __init__(
        self,
        model: "Model",
        dataset: str,
        split: "Split",
        Y: Any,
        names: Sequence[str] | None,
        ranking: "Ranking",
        chosen: Any,
        evaluation: "Evaluation",
        found: "LabelReport",
        objective: str,
    ) -> None:
        self.model, self.dataset, self.split, self.Y = model, dataset, split, Y
        self.names, self.ranking, self.chosen = names, ranking, chosen
        self.evaluation, self.found, self.objective = evaluation, found, objective

    def write(self, directory: Path) -> None:
        """All files; a file that was there before is replaced whole."""
        from holobind.cli import plots

        directory.mkdir(parents=True, exist_ok=True)
        _write_csv(directory / "labels.csv", LABEL_COLUMNS, self.labels())
        _write_csv(directory / "confusion.csv", CONFUSION_COLUMNS, self.confusions())
        _write_csv(directory / "rows.csv", ROW_COLUMNS, self.rows(MAX_CSV_ROWS))
        plots.label_quality(self.found.support, self.found.f1, self.dataset, directory / "labels.png")
        if self.evaluation.reliability:
            plots.reliability(self.evaluation.reliability, self.dataset, directory / "reliability.png")
        with write_errors(directory / "index.html"), atomic_write(directory / "index.html", "w") as file:
            file.write(self.html(directory))

    def label(self, i: int) -> str:
        return str(i) if self.names is None else self.names[i]

    def labels(self) -> Iterable[tuple[Any, ...]]:
        """The rows of LABEL_COLUMNS: labels that occur or are predicted, most frequent first."""
        found, trained = self.found, self.model.frequencies.counts
        seen = [i for i in (-found.support).argsort(kind="stable").tolist() if found.support[i] or found.predicted[i]]
        for i in seen:
            values = (array[i] for array in (found.precision, found.recall, found.f1, found.average_precision))
            counts = found.support[i], found.predicted[i], trained[i] if i < len(trained) else 0
            yield self.label(i), *map(int, counts), *(f"{value:.2f}" for value in values)

    def confusions(self) -> Iterable[tuple[Any, ...]]:
        for true, wrong, n in self.found.confusions:
            yield self.label(true), self.label(wrong), n

    def rows(self, n: int) -> Iterable[tuple[Any, ...]]:
        """The rows of ROW_COLUMNS, hardest first."""
        for row in self.found.hardest(n).tolist():
            true = self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]].tolist()
            given = [i for i in self.chosen[row].tolist() if i >= 0]
            text = "" if self.split.texts is None else self.split.texts[row]
            shown = printable(text, MAX_TEXT_CHARACTERS)
            labels = (" | ".join(map(self.label, ids)) for ids in (true, given))
            yield row, f"{self.found.hardness[row]:.2f}", *labels, shown

    def html(self, directory: Path) -> str:
        scores, sets = self.evaluation.scores, self.evaluation.sets
        numbers = [(f"{scores['P'][0]:.1f}", "P@1"), (f"{scores['nDCG'][-1]:.1f}", f"nDCG@{len(scores['nDCG'])}")]
        numbers += [(f"{value:.1f}", name) for name, value in sets.items()]
        labels = list(self.labels())
        body = [
            html.tag("h1", f"{self.dataset}: labels, confusions, hardest rows"),
            html.tag(
                "p",
                f"{self.evaluation.n_rows:,} rows; values in percent. A label is predicted for a row where it is in "
                f"the set chosen by {self.objective}.",
                "note",
            ),
            html.figures(numbers),
            html.png((directory / "labels.png").read_bytes(), "F1 of labels by their number of rows"),
        ]
        if self.evaluation.reliability:
            body.append(html.png((directory / "reliability.png").read_bytes(), "reliability of the probabilities"))
        body += [
            *_section("Labels", "labels.csv", len(labels), SHOWN_LABELS, LABEL_COLUMNS, labels),
            *_section(
                "Confused labels", "confusion.csv", len(self.found.confusions), SHOWN_CONFUSIONS,
                CONFUSION_COLUMNS, list(self.confusions()),
            ),
            *_section(
                "Hardest rows", "rows.csv", min(len(self.split), MAX_CSV_ROWS), SHOWN_ROWS,
                ROW_COLUMNS, list(self.rows(SHOWN_ROWS)),
            ),
        ]  # fmt: skip
        return html.page(f"{self.dataset}: report", body)


LABEL_COLUMNS = ("label", "#rows", "#predicted", "#training rows", "#precision", "#recall", "#F1", "#average precision")
CONFUSION_COLUMNS = ("missed label", "predicted instead", "#rows")
ROW_COLUMNS = ("#row", "#cross-entropy", "true labels", "predicted labels", "text")


def _section(
    title: str, file: str, n: int, n_shown: int, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> list[str]:
    note = f"{min(n, n_shown):,} of {n:,} are shown; {file} has all." if n > n_shown else f"Also in {file}."
    return [html.tag("h2", title), html.tag("p", note, "note"), html.table(columns, rows[:n_shown])]


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    with write_errors(path), atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([name.lstrip("#") for name in columns])
        writer.writerows(rows)


def _check_directory(path: Path) -> None:
    """Refuse a directory with files of others, before anything is computed."""
    if not path.exists():
        return
    if not path.is_dir():
        raise FileError(f"--out: {path} is a file; name a directory for the report")
    if others := sorted(each.name for each in path.iterdir() if each.name not in FILES):
        raise FileError(f"--out: {path} holds other files ({others[0][:40]!r}); name a new directory for the report")
