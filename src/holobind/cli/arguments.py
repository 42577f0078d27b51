"""Arguments and options that several verbs share."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.cli.terminal import set_quiet
from holobind.errors import DataError

if TYPE_CHECKING:
    from holobind._types import ProgressCallback
    from holobind.data import Dataset, Split
    from holobind.model import Model

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="Directory, file, or name of a fetched dataset.", show_default=False),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `holobind train`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.", callback=set_quiet, show_default=False)
]
EncoderPlace = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME-OR-PATH",
        help="Where the model's sentence encoder is, if it has one.  \\[default: where it was in training]",
        show_default=False,
    ),
]
FIELDS = "Fields of a table"
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="csv, tsv, jsonl, annif, fasttext, parquet, arrow, xml, svmlight, npz or text.  \\[default: from the "
        "content]",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
TextField = Annotated[
    str | None,
    typer.Option(
        "--text-field",
        metavar="NAMES",
        help="Fields that make up the text, such as title^2,abstract: joined in this order, the title twice. Numbers "
        "from 1 are columns of a file without a header.  \\[default: text, or title and abstract, or the like]",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
LabelField = Annotated[
    str | None,
    typer.Option(
        "--label-field",
        metavar="NAME",
        help="Field of the labels.  \\[default: labels, tags, subjects, or the like]",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        "--label-separator",
        metavar="TEXT",
        help="What stands between labels in one field, such as '|'; ' ' for white space, none for one label a field.  "
        "\\[default: detected from the content]",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
IdField = Annotated[
    str | None,
    typer.Option(
        "--id-field",
        metavar="NAME",
        help="Field of the ids.  \\[default: id, document_id, or the like]",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
LabelNames = Annotated[
    Path | None,
    typer.Option(
        "--label-names",
        metavar="FILE",
        help="Vocabulary with names of labels: lines <uri> TAB name, or CSV with uri and label_en.",
        rich_help_panel=FIELDS,
        show_default=False,
    ),
]
GroupField = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Field with the group of each training row: whole groups are held out.",
        rich_help_panel=FIELDS,
    ),
]
LabelText = Annotated[
    Path | None,
    typer.Option(
        "--label-text",
        metavar="FILE",
        help="Names, synonyms and descriptions of labels: SKOS, TSV, CSV, JSON, or a line a label. Labels with few or "
        "no rows are suggested by them.",
        rich_help_panel=FIELDS,
    ),
]
LabelLanguage = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language of the label texts, such as en, where the file has several.  \\[default: all]",
        rich_help_panel=FIELDS,
    ),
]
BYTE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def byte_size(text: str) -> int:
    """A number of bytes from a text like 500MB or 20GB."""
    match = re.fullmatch(r"([0-9]{1,9})([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text[:40]!r} is not a size; write it like 500MB or 20GB")
    return int(match[1]) * BYTE_UNITS[match[2]]


MaxUncompressed = Annotated[
    int | None,
    typer.Option(
        "--max-uncompressed",
        parser=byte_size,
        metavar="SIZE",
        help="What a compressed input may expand to, like 20GB.  \\[default: 100 times its size, at least 64 MB]",
        show_default=False,
    ),
]


def print_description(dataset: "Dataset") -> None:
    """Say on stderr how a table was read."""
    from holobind.cli.terminal import first_process

    if dataset.layout is not None and not dataset.layout.is_own and first_process():
        typer.echo(dataset.description, err=True)


def load_for(model: "Model", path: Path, on_progress: "ProgressCallback", **options: Any) -> "tuple[Dataset, Split]":
    """A dataset for a trained model, described in one line, and the split to measure on: test, or else all rows.

    options   of `data.load`
    """
    from holobind.data import load

    dataset = load(path, preferred_text_field=model.metadata.get("text fields"), on_progress=on_progress, **options)
    print_description(dataset)
    if dataset.tfidf is not None and not model.reads_texts:
        raise DataError(f"{path} has only texts, and this model reads features; train a model on texts")
    return dataset, dataset.train if dataset.test is None else dataset.test
