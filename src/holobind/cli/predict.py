"""`holobind evaluate` and `holobind predict`: metrics of a model on labelled rows, and predictions for a stream."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from holobind.cli.arguments import (
    Data,
    EncoderPlace,
    Format,
    IdField,
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
from holobind.cli.label_options import Exclude, LabelOptions, Only, read_labels
from holobind.cli.terminal import claim_outputs, print_json, print_rich, progress
from holobind.errors import OptionError

app = typer.Typer()

STDIN_HANDLE = 0


@app.command()
def evaluate(
    model: ModelFile,
    data: Data,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Largest k of the metrics.")] = 5,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Picture of the reliability of the probabilities of the five best labels: PNG, SVG, PDF or JPEG."
        ),
    ] = None,
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
    """Compute P@k, nDCG@k, PSP@k, F1 and other metrics of a model.

    The rows are those of the test split, or all rows if there is none. F1
    is that of the label sets which `predict --auto` chooses.

    Examples:

        holobind evaluate model.safetensors bibtex

        holobind evaluate model.safetensors new.jsonl -k 10 --json

        holobind evaluate model.safetensors bibtex --plot reliability.png
    """
    import holobind as hb
    from holobind.cli import plots
    from holobind.data.formats import input_files

    loaded = hb.load(model, encoder=encoder)
    if plot is not None and loaded.calibration is None:
        raise OptionError("--plot shows probabilities; this model has none, because no rows were held out, or too few")
    outputs = {"--plot": plot}
    with claim_outputs(outputs, [model, *input_files(data)]), progress() as report:
        dataset, split = load_for(
            loaded,
            data,
            report,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            max_uncompressed=max_uncompressed,
        )
        n_empty = int(loaded.examples(loaded.inputs_of(split), cache=True, on_progress=report).empty_rows().sum())
        found = loaded.evaluate(split, k, label_names=dataset.label_names, dataset=dataset.name, on_progress=report)
        if plot is not None:
            plots.reliability(found.reliability, f"{dataset.name}, {found.n_rows:,} rows", plot)
    if as_json:
        split_name = "all" if dataset.test is None else "test"
        print_json({"model": str(model), "data": str(data), "split": split_name, **found.as_json(), "unknown": n_empty})
    else:
        print_rich(found.table())
        if n_empty:
            print_rich(f"{n_empty:,} of {len(split):,} rows have no word or feature that the model knows")


@app.command()
def predict(
    model: ModelFile,
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="File, also .gz, .bz2 or .xz; a folder; - for standard input.")
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of labels per line.")] = 5,
    threshold: Annotated[
        float,
        typer.Option(help="Leave out labels whose score is not above this.  \\[default: none]", show_default=False),
    ] = -math.inf,
    auto: Annotated[
        bool, typer.Option("--auto", help="Choose the number of labels of each line by --objective, and not by -k.")
    ] = False,
    objective: Annotated[
        str | None,
        typer.Option(
            help="With --auto: micro-f1, sample-f1, precision=0.8 or recall=0.8 (any fraction).  \\[default: micro-f1]",
            show_default=False,
        ),
    ] = None,
    min_probability: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out labels of a smaller probability.")
    ] = 0.0,
    proba: Annotated[
        bool | None,
        typer.Option(
            "--proba/--no-proba",
            help="Calibrated probabilities beside the scores.  \\[default: where the model has them]",
            show_default=False,
        ),
    ] = None,
    exclude: Exclude = None,
    only: Only = None,
    names: Annotated[
        bool, typer.Option("--names/--ids", help="Label names, if the model has them, or label ids.")
    ] = True,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="text, jsonl, xml, csv, tsv, annif, fasttext, parquet or arrow.  \\[default: by the name and "
            "the first line]"
        ),
    ] = None,
    text_field: TextField = None,
    id_field: IdField = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Write the error of an invalid line in its place, and continue.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Output file, also .gz, .bz2, .xz or .parquet; a folder for a folder.  \\[default: stdout]"),
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Predict a folder of files on workers of Ray. Needs holobind\\[ray].")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --ray: number of workers, one processor each.  \\[default: 2]", show_default=False
        ),
    ] = None,
    encoder: EncoderPlace = None,
    max_uncompressed: MaxUncompressed = None,
    as_json: Annotated[bool, typer.Option("--json", help="No effect: the output is always JSON lines.")] = False,
) -> None:
    """Predict the labels of each input line; write one line of JSON for each.

    Labels come best first, with their scores and, where the model was
    calibrated on held-out rows, their probabilities.

    The input is a table (CSV, TSV, Parquet, a folder of texts), or lines: a
    text, a JSON object with "text" or "features", or a sparse row in the
    XML-Repository format. An id of the input comes back beside the labels. A
    folder of .parquet or .jsonl files gives a folder of predictions; files
    that are there already are not made again.

        read json file path

        {"id": 7, "text": "read json file path"}

        {"features": {"12": 0.5, "40": 1}}

        12:0.5 40:1

    A line without any word or feature that the model knows gets no labels, and
    "unknown": "no known word" or "no features".

    Examples:

        echo "read json file path" | holobind predict model.safetensors -

        holobind predict model.safetensors test.txt.xz --ids --out labels.jsonl

        holobind predict model.safetensors new.csv --text-field title,abstract --id-field isbn

        holobind predict model.safetensors new.jsonl -k 10 --min-probability 0.2

        holobind predict model.safetensors new.jsonl --auto --exclude misc

        holobind predict model.safetensors new.jsonl --auto --objective precision=0.8

        holobind predict model.safetensors new.parquet --out labels.parquet

        holobind predict model.safetensors new_files/ --out labels/ --ray --workers 8
    """
    from holobind.cli.batch import PredictionJob, batch_files, output_files, predict_files, predict_with_ray

    if math.isnan(threshold):
        raise OptionError("--threshold must be a number; got nan")
    if objective is not None and not auto:
        raise OptionError(f"--objective {objective} chooses the number of labels with --auto; give --auto, too")
    if workers is not None and not ray:
        raise OptionError(f"--workers {workers} are those of --ray; give --ray, too")
    job = PredictionJob(
        model,
        k=k,
        threshold=threshold,
        names=names,
        options=LabelOptions(
            objective=(objective or "micro-f1") if auto else None,
            min_probability=min_probability,
            probabilities=proba,
            exclude=read_labels(exclude) or (),
            only=read_labels(only),
        ),
        format=format,
        text_field=text_field,
        id_field=id_field,
        encoder=encoder,
        max_uncompressed=max_uncompressed,
    )
    path = None if str(source) == "-" else source
    files = [] if path is None else batch_files(path)
    if files:
        missing = output_files(files, out)
        if len(missing) < len(files):
            typer.echo(f"{len(files) - len(missing):,} of {len(files):,} files are in {out} already", err=True)
        with progress() as report:
            written = predict_with_ray(job, missing, workers or 2) if ray else predict_files(job, missing)
            for done, target in enumerate(written, 1):
                report(f"{target.name}, {done:,} of {len(missing):,} files", done / len(missing))
        return
    if ray:
        raise OptionError(f"--ray predicts a folder of .parquet or .jsonl files; {source} is none")
    with claim_outputs({"--out": out}, [model, STDIN_HANDLE if path is None else path]):
        loaded = job.load_model()
        if path is None and sys.stdin is not None and sys.stdin.isatty():
            typer.echo("Each input line gets one output line; Ctrl-D ends.", err=True)
        job.run(
            loaded,
            path,
            out,
            on_layout=lambda layout: typer.echo(layout.describe(), err=True),
            on_error=(lambda error: typer.echo(f"holobind: {error}", err=True)) if skip_bad else None,
        )
