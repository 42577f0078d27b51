"""`holobind train`: a model from data. Its options come from the table in `training.config`."""

import json
import time
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind._files import atomic_write, write_errors
from holobind.cli.arguments import (
    Data,
    Format,
    GroupField,
    Json,
    LabelField,
    LabelLanguage,
    LabelNames,
    LabelSeparator,
    LabelText,
    MaxUncompressed,
    Quiet,
    TextField,
    print_description,
)
from holobind.cli.terminal import (
    claim_outputs,
    first_process,
    interrupted,
    print_json,
    print_rich,
    progress,
    several_processes,
)
from holobind.errors import DataError, FileError, OptionError, TrainingInterrupted
from holobind.training.config import OPTIONS, Option, TrainConfig, split_options, without_effect
from holobind.training.state import TrainState

if TYPE_CHECKING:
    from holobind._types import ProgressCallback
    from holobind.training.learning import Callbacks

app = typer.Typer()

Out = Annotated[Path, typer.Option(help="File of the model.")]
Log = Annotated[Path | None, typer.Option(help="File to which a line of JSON is added for each epoch.")]
Plot = Annotated[
    Path | None, typer.Option(help="Picture of the loss and the validation metric: PNG, SVG, PDF or JPEG.")
]
Timings = Annotated[Path | None, typer.Option(help="JSON file of the seconds that each step took.")]
Groups = Annotated[
    Path | None,
    typer.Option(help="File with the group of each training row, a line a row: whole groups are held out."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue where the same command was interrupted.")]
MODEL_PATH = Path("model.safetensors")


def train(
    data: Data,
    *,
    out: Out = MODEL_PATH,
    log: Log = None,
    plot: Plot = None,
    timings: Timings = None,
    groups: Groups = None,
    resume: Resume = False,
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    group_field: GroupField = None,
    label_names: LabelNames = None,
    label_text: LabelText = None,
    label_language: LabelLanguage = None,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a model that ranks labels, and evaluate it if the data has a test split.

    Without options it is ridge regression in closed form plus the mean residual
    of the nearest training rows (kNN), which takes seconds. Label trees are
    added if held-out rows gain from them.

    Examples:

        holobind train bibtex

        holobind train reviews.jsonl --out reviews.safetensors

        holobind train books.csv --text-field title^2,abstract --label-field tags

        holobind train books.csv --label-text subjects.ttl --label-language en

        holobind train bibtex --network fc --loss query --dim 400 --plot curves.png

        holobind train bibtex --network fc --epochs 50 --resume

        holobind train reviews.jsonl --network cnn --embedding-dim 100 --max-tokens 200

        torchrun --nproc-per-node 2 -m holobind train bibtex --network fc

        holobind train large --no-text --memory 2GB
    """
    import holobind as hb
    from holobind._processes import ALONE, joined
    from holobind.cli import plots
    from holobind.cli.describe import file_size, metric_summary, notes, summary, validation, validation_text
    from holobind.data.csr import free_memory
    from holobind.data.formats import input_files, training_table
    from holobind.data.label_texts import read_label_texts, with_label_texts
    from holobind.data.tables import TableOptions, read_field
    from holobind.data.text_files import read_lines
    from holobind.ridge_knn.fit_checkpoint import remove_checkpoint

    config, train_config = split_options({name: _parse(OPTIONS[name], value) for name, value in options.items()})
    checkpoint = Path(f"{out}.checkpoint")
    outputs = {"--out": out, "--log": log, "--plot": plot, "--timings": timings}
    if not config.closed_form and not checkpoint.is_dir():
        outputs["the checkpoint"] = checkpoint
    inputs = input_files(data) + [Path(file) for file in (config.word_vectors, groups, label_text) if file]
    began = time.perf_counter()
    with claim_outputs(outputs, inputs), progress() as report:
        if checkpoint.exists() and checkpoint.is_dir() != config.closed_form:
            kind = "a network" if config.closed_form else "the closed form"
            raise FileError(f"{checkpoint} belongs to an interrupted run of {kind}; finish that run, or remove it")
        if checkpoint.exists() and not resume:
            raise FileError(f"{checkpoint} belongs to an interrupted run; continue it with --resume, or remove it")
        if groups is not None and group_field is not None:
            raise OptionError("--groups and --group-field both give the groups of rows; take one of them")
        group_names = None if groups is None else read_lines(groups, max_uncompressed)
        if group_field is not None:
            table = TableOptions.of(format=format, text_field=text_field, label_field=label_field)
            group_names = read_field(training_table(data), group_field, table, max_uncompressed)
        if label_language is not None and label_text is None:
            raise OptionError("--label-language is that of --label-text, which is not given")
        texts = None if label_text is None else read_label_texts(label_text, label_language, max_uncompressed)
        dataset = hb.data.load(
            data,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            memory_map=config.closed_form and (train_config.memory is not None or several_processes()),
            texts=config.text is not False or config.reads_tokens,
            max_uncompressed=max_uncompressed,
            on_progress=report,
        )
        if group_names is not None and len(group_names) != len(dataset.train):
            raise DataError(
                f"{groups or group_field} has {len(group_names):,} lines, and the data has {len(dataset.train):,} "
                "training rows; give the group of each row in a line of its own"
            )
        print_description(dataset)
        matched = None
        if texts is not None:
            n_labels = dataset.n_labels
            dataset, matched = with_label_texts(dataset, texts)
            if first_process():
                typer.echo(
                    f"label texts: {matched.n_matched:,} of the data's {n_labels:,} labels have one, and "
                    f"{len(matched.texts) - n_labels:,} labels without rows are added",
                    err=True,
                )
        fields = {} if dataset.layout is None else {"text fields": dataset.layout.fields.text}
        try:
            model = hb.learn(
                dataset.train,
                config,
                train_config,
                label_names=dataset.label_names,
                tfidf=dataset.tfidf,
                metadata={"data": dataset.name, "holobind": hb.__version__, **fields},
                callbacks=make_callbacks(report),
                checkpoint=checkpoint,
                resume=resume,
                log=log,
                quantised=True,
                max_uncompressed=max_uncompressed,
                groups=group_names,
                label_texts=None if matched is None else matched.texts,
            )
        except (TrainingInterrupted, KeyboardInterrupt) as stopped:
            if not checkpoint.exists():
                raise
            raise interrupted(
                f"stopped; {checkpoint} holds the run: repeat the command with --resume to continue"
            ) from stopped
        # All processes that solved the closed form have its model; they share the test rows.
        processes = joined() if config.closed_form else ALONE
        evaluation = None
        free_memory(dataset.train.X)
        if dataset.test is not None and (first_process() or processes.size > 1):
            evaluation = model.evaluate(dataset.test, dataset=dataset.name, processes=processes, on_progress=report)
        model.network.release_tables()
        free_memory(dataset.train.X)
        if not first_process():
            if processes.size > 1:
                model.save(out, processes=processes)  # which compresses some of it
            return
        # Not before: an error is one line.
        if unused := without_effect((name for name, value in options.items() if value is not None), config):
            flags = ", ".join(OPTIONS[name].flag for name in unused)
            trained = "solved in closed form" if config.closed_form else f"a {config.network} network"
            typer.echo(f"holobind: this model is {trained} with a {config.head} head: no effect of {flags}", err=True)
        if evaluation is not None:
            model.metadata["test"] = evaluation.as_json()
        report(f"writing {out}", 0.0)
        model.save(out, processes=processes)
        if plot:
            plots.curves(model.metadata, plot)
        if config.closed_form:
            remove_checkpoint(checkpoint)
        else:
            checkpoint.unlink(missing_ok=True)
        seconds = {"in all": round(time.perf_counter() - began, 2), **model.metadata["timings"]}
        if timings:
            with write_errors(timings), atomic_write(timings, "w") as file:
                file.write(json.dumps(seconds, indent=1) + "\n")
    result = {
        "path": str(out),
        "bytes": out.stat().st_size,
        "seconds": seconds["in all"],
        "training seconds": seconds["training"],
        "validation": validation(model.metadata),
        "test": model.metadata.get("test"),
        "notes": notes(model.metadata),
    }
    if as_json:
        print_json(result)
        return
    print_rich(f"{out}: {summary(model)}, {file_size(result['bytes'])}")
    times = f"{seconds['training']:.1f} s, {seconds['in all']:.1f} s in all"
    print_rich(f"trained on {len(dataset.train):,} rows in {times}")
    if result["validation"]:
        print_rich("validation: " + validation_text(model.metadata))
    if evaluation is not None:
        print_rich(f"test, {evaluation.n_rows:,} rows: {metric_summary(model.metadata['test'])}")
    for note in result["notes"]:
        print_rich(f"note: {note}")


def make_callbacks(report: "ProgressCallback", name: str = "") -> "Callbacks":
    """Callbacks that show the progress of the solver and of training in one bar."""
    from holobind.training.learning import Callbacks

    def on_train(state: TrainState, config: TrainConfig) -> None:
        epochs, metric = config.epochs or 1, config.metric or ""
        done = (state.epoch + state.step / max(state.steps, 1)) / epochs
        if config.time_limit is not None:
            done = max(done, state.seconds / config.time_limit)
        done = min(done, 1.0)
        last = (state.history or [{}])[-1]
        validated = f", {metric} {last[metric]:.2f}" if metric in last else ""
        left = round(state.seconds * (1 - done) / done) if done else 0
        report(
            f"{name}epoch {min(state.epoch + 1, epochs)}/{epochs}, loss {state.loss:.4g}{validated}, "
            f"{state.rows_per_second:,.0f} rows/s, {left // 60}:{left % 60:02} left",
            done,
        )

    return Callbacks(
        on_solve=lambda stage, done: report(f"{name}solving: {stage}", done),
        on_train=on_train if first_process() else None,
    )


def _parameter(option: Option) -> Parameter:
    """An option as typer takes it. None stands for "not given"; the help shows the default in words."""
    kind = option.values.type
    flag = f"{option.flag}/--no-{option.flag[2:]}" if kind is bool else option.flag
    text = f"{option.help}  \\[default: {option.default_text}]"
    shown = typer.Option(flag, help=text, rich_help_panel=option.group, show_default=False)
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[(str if kind is tuple else kind) | None, shown],
    )


def _parse(option: Option, value: Any) -> Any:
    """A list with commas as a tuple, of numbers where the default is a list of numbers; other values as they are."""
    if option.values.type is not tuple or value is None:
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if option.default is not None:
        return tuple(parts)
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise OptionError(f"{option.flag} wants sizes with commas between them, such as 512,512; got {value[:40]!r}")
    return tuple(int(part) for part in parts)


def _with_options(command: Any) -> Any:
    """Give `train` its options from the table: typer reads a function's signature and annotations."""
    *fixed, last = Signature.from_callable(command).parameters.values()
    assert last.kind is Parameter.VAR_KEYWORD
    parameters = [*fixed[:1], *map(_parameter, OPTIONS.values()), *fixed[1:]]
    command.__signature__ = Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


app.command()(_with_options(train))
