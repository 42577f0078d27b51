"""`holobind compare`: linear and holographic heads on the same data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from holobind._files import atomic_write, write_errors
from holobind.cli import train as train_cli
from holobind.cli.arguments import (
    Data,
    Format,
    Json,
    LabelField,
    LabelNames,
    LabelSeparator,
    MaxUncompressed,
    Quiet,
    TextField,
    print_description,
)
from holobind.cli.terminal import claim_outputs, interrupted, print_json, print_rich, progress
from holobind.errors import FileError, TrainingInterrupted
from holobind.training.config import OPTIONS

app = typer.Typer()


@app.command()
def compare(
    data: Data,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help=f"{OPTIONS['epochs'].help}  \\[default: {OPTIONS['epochs'].default_text}]"),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Maximum training time of each model in seconds.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help=OPTIONS["seed"].help)] = 0,
    out: Annotated[Path, typer.Option(help="Directory for compare.json and compare.png.")] = Path("compare"),
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    label_names: LabelNames = None,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train models with linear and holographic heads, and compare them.

    The table shows accuracy on the test split, or on a tenth of the rows if
    there is none, the number of parameters, training time and prediction speed.

    Examples:

        holobind compare bibtex

        holobind compare bibtex --epochs 10 --out results --json
    """
    from holobind.cli import plots
    from holobind.cli.comparison import run_candidates, table
    from holobind.data import load
    from holobind.data.formats import input_files

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out} cannot be made a directory ({error.strerror}); choose another --out") from error
    table_path, plot_path = out / "compare.json", out / "compare.png"
    outputs = {"the table": table_path, "the plot": plot_path}
    with claim_outputs(outputs, input_files(data)), progress() as report:
        dataset = load(
            data,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            max_uncompressed=max_uncompressed,
            on_progress=report,
        )
        print_description(dataset)
        try:
            rows = run_candidates(
                dataset,
                epochs=epochs,
                time_limit=time_limit,
                seed=seed,
                callbacks=lambda name: train_cli.make_callbacks(report, f"{name}: "),
            )
        except TrainingInterrupted as stopped:
            raise interrupted("stopped; no file was written") from stopped
        found = {"data": dataset.name, "training rows": len(dataset.train), "labels": dataset.n_labels, "rows": rows}
        title = f"{dataset.name}: {len(dataset.train):,} training rows, {dataset.n_labels:,} labels"
        plots.comparison([row for row in rows if "skipped" not in row], plot_path, title)
        with write_errors(table_path), atomic_write(table_path, "w") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    if as_json:
        print_json(found)
        return
    print_rich(f"wrote {plot_path} and {table_path}")
    for row in rows:
        if "skipped" in row:
            print_rich(f"{row['name']}: skipped, because {row['skipped']}")
    print_rich(table(rows, title))
