"""`holobind update` and `holobind forget`: a model that goes on learning."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.cli.arguments import (
    EncoderPlace,
    Format,
    Json,
    LabelField,
    LabelLanguage,
    LabelNames,
    LabelSeparator,
    LabelText,
    MaxUncompressed,
    ModelFile,
    Quiet,
    TextField,
    print_description,
)
from holobind.cli.label_options import read_labels
from holobind.cli.terminal import claim_outputs, print_json, print_rich, progress
from holobind.errors import DataError, OptionError

if TYPE_CHECKING:
    from holobind.model import Model

app = typer.Typer()

Out = Annotated[Path | None, typer.Option(help="File of the model.  \\[default: MODEL itself]")]
Reweigh = Annotated[
    bool,
    typer.Option(
        "--reweigh", help="Set the weights of all rare labels by the new counts; takes longer with many labels."
    ),
]
RefitTrees = Annotated[
    bool,
    typer.Option("--refit-trees", help="Fit trees anew, where the model has some; they stay as they are otherwise."),
]
Rows = tuple[Any, list[list[Any]]]  # inputs of a model, and the labels of each row


@app.command()
def update(
    model: ModelFile,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help="Directory or file, as for `holobind train`.", show_default=False),
    ] = None,
    reject: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Data whose labels are not right for their rows.")
    ] = None,
    out: Out = None,
    reweigh: Reweigh = False,
    refit_trees: RefitTrees = False,
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    label_names: LabelNames = None,
    label_text: LabelText = None,
    label_language: LabelLanguage = None,
    max_uncompressed: MaxUncompressed = None,
    encoder: EncoderPlace = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Add rows to a model, and labels that it does not know, without another training.

    The result is that of a fit to all rows with the same penalty, features and
    settings. Labels of a text that are not right go into --reject: their
    scores fall for this text and for similar ones. The training split of DATA
    is added. In a model with label texts, a new label is found by its name, or
    by its texts in --label-text; labels that only this file has are added, too.

    Examples:

        holobind update model.safetensors new.jsonl

        holobind update model.safetensors new.csv --label-field tags --out next.safetensors

        holobind update model.safetensors --reject wrong.jsonl

        holobind update model.safetensors --label-text thesaurus.ttl
    """
    import holobind as hb
    from holobind.data.label_texts import read_label_texts

    if data is None and reject is None and label_text is None:
        raise OptionError(
            "update: give DATA with new rows, --reject with labels that are not right, or --label-text with new labels"
        )
    if label_language is not None and label_text is None:
        raise OptionError("--label-language is that of --label-text, which is not given")
    began, path = time.perf_counter(), out or model
    inputs = _inputs(model if out else None, data, reject, label_text)
    with claim_outputs({"--out": path}, inputs), progress() as report:
        loaded = hb.load(model, encoder=encoder)
        loaded.check_can_learn_on()  # before data is read
        options = {
            "format": format,
            "text_field": text_field,
            "label_field": label_field,
            "label_separator": label_separator,
            "label_names": label_names,
            "max_uncompressed": max_uncompressed,
        }
        texts = None if label_text is None else read_label_texts(label_text, label_language, max_uncompressed)
        right, wrong = (None if each is None else _read(loaded, each, report, options) for each in (data, reject))
        rows, labels, rejected = _joined(right, wrong)
        learned = loaded.update(
            rows,
            labels,
            rejected=rejected,
            label_texts=texts,
            reweigh=reweigh,
            refit=refit_trees,
            on_progress=report,
        )
        report(f"writing {path}", 0.0)
        learned.save(path)
    new_labels = {*(learned.label_names or range(learned.n_labels))} - {*(loaded.label_names or range(loaded.n_labels))}
    _print(path, began, as_json, learned, {"rows": len(labels), "new labels": len(new_labels)}, refit_trees)


@app.command()
def forget(
    model: ModelFile,
    documents: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Directory or file with the rows to forget, as in training.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Numbers of training rows from 0, with commas; or @FILE, a number a line."
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Label to forget; repeat it, or give @FILE.")
    ] = None,
    out: Out = None,
    reweigh: Reweigh = False,
    refit_trees: RefitTrees = False,
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    max_uncompressed: MaxUncompressed = None,
    encoder: EncoderPlace = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove rows or labels from a model, as if they had never been in its data.

    Rows are numbered in the order of the training data, and then of updates.
    --documents finds them by their features. A label that is forgotten is never
    predicted again. Trees keep what they have learned, unless --refit-trees.

    Examples:

        holobind forget model.safetensors --documents withdrawn.jsonl

        holobind forget model.safetensors --rows 17,230

        holobind forget model.safetensors --label obsolete --label @old-labels.txt
    """
    import holobind as hb

    if sum(given is not None for given in (documents, rows, label)) != 1:
        raise OptionError("forget: give --documents, --rows or --label, one of them")
    numbers, labels = None if rows is None else _numbers(rows), read_labels(label)
    began, path = time.perf_counter(), out or model
    with claim_outputs({"--out": path}, _inputs(model if out else None, documents)), progress() as report:
        loaded = hb.load(model, encoder=encoder)
        loaded.check_can_learn_on()
        n_rows = loaded.frequencies.n_rows
        inputs = None
        if documents is not None:
            options = {
                "format": format,
                "text_field": text_field,
                "label_field": label_field,
                "label_separator": label_separator,
                "max_uncompressed": max_uncompressed,
            }
            inputs = _read(loaded, documents, report, options)[0]
        learned = loaded.forget(
            rows=numbers, inputs=inputs, labels=labels, reweigh=reweigh, refit=refit_trees, on_progress=report
        )
        report(f"writing {path}", 0.0)
        learned.save(path)
    changes = {
        "rows forgotten": n_rows - learned.frequencies.n_rows,
        "labels forgotten": len(_free(learned)) - len(_free(loaded)),
    }
    _print(path, began, as_json, learned, changes, refit_trees)


def _inputs(*paths: Path | None) -> list[Path]:
    from holobind.data.formats import input_files

    return [file for path in paths if path is not None for file in input_files(path)]


def _read(model: "Model", path: Path, report: Any, options: dict[str, Any]) -> Rows:
    """The inputs of a model from the training split of data, and the names of their labels, or their ids."""
    from holobind.data import load
    from holobind.data.csr import label_id_sets

    dataset = load(path, preferred_text_field=model.metadata.get("text fields"), on_progress=report, **options)
    print_description(dataset)
    if dataset.tfidf is not None and not model.reads_texts:
        raise DataError(f"{path} has only texts, and this model reads features; train a model on texts")
    inputs, sets, names = model.inputs_of(dataset.train), label_id_sets(dataset.train.Y), dataset.label_names
    if names is None and model.label_names is None:
        return inputs, sets
    if names is None or model.label_names is None:
        whose = "the data has none" if names is None else "this model has none"
        raise DataError(f"{path}: labels are matched by name, and {whose}; give both with names, or both without")
    return inputs, [[names[i] for i in ids] for ids in sets]


def _joined(right: Rows | None, wrong: Rows | None) -> tuple[Any, list[Any], list[Any] | None]:
    """All rows with their right and their wrong labels; a text that is in both has both in one row."""
    if wrong is None:
        return ([], [], None) if right is None else (right[0], list(right[1]), None)
    if right is None:
        return wrong[0], [[] for _ in wrong[1]], list(wrong[1])
    if not isinstance(right[0], list):
        from scipy.sparse import vstack

        n, m = len(right[1]), len(wrong[1])
        return (
            vstack([right[0], wrong[0]], format="csr"),
            [*right[1], *([] for _ in range(m))],
            [*([] for _ in range(n)), *wrong[1]],
        )
    texts: list[str] = list(right[0])
    labels: list[Any] = list(right[1])
    rejected: list[list[Any]] = [[] for _ in texts]
    at = {text: i for i, text in enumerate(texts)}
    for text, found in zip(wrong[0], wrong[1], strict=True):
        if text not in at:
            at[text] = len(texts)
            texts.append(text)
            labels.append([])
            rejected.append([])
        rejected[at[text]].extend(found)
    return texts, labels, rejected


def _numbers(text: str) -> list[int]:
    parts = read_labels([text]) or [] if text.startswith("@") else text.split(",")
    parts = [part.strip() for part in parts if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts):
        raise OptionError(f"--rows wants numbers of rows with commas between them, such as 17,230; got {text[:40]!r}")
    return [int(part) for part in parts]


def _free(model: "Model") -> list[int]:
    """The ids of forgotten labels."""
    return model.network.free_labels()


def _print(path: Path, began: float, as_json: bool, model: "Model", changes: dict[str, int], refitted: bool) -> None:
    from holobind.cli.describe import file_size
    from holobind.ridge_knn import RidgeKnn

    network = model.network
    assert isinstance(network, RidgeKnn)
    has_trees = bool(network.label_trees) or network.forest is not None
    result = {
        "path": str(path),
        **changes,
        "all rows": network.n_training_rows,
        "all labels": model.n_labels - len(_free(model)),
        "seconds": round(time.perf_counter() - began, 2),
        "bytes": path.stat().st_size,
        "trees": "none" if not has_trees else "fitted anew" if refitted else "as before",
    }
    if as_json:
        print_json(result)
        return
    done = ", ".join(f"{n:,} {name}" for name, n in changes.items())
    trees = "" if not has_trees else f"; trees {result['trees']}"
    print_rich(
        f"{path}: {done}; {result['all rows']:,} rows and {result['all labels']:,} labels in all; "
        f"{result['seconds']:.1f} s, {file_size(path.stat().st_size)}{trees}"
    )
