"""`holobind train`, `evaluate`, `predict`, `inspect`, `compare`: models from data, and labels from models."""

import json
import math
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.cli.terminal import Json, check_writable, first_process, print_json, print_rich, progress
from holobind.errors import DataError, FileError, OptionError, Stopped

if TYPE_CHECKING:
    from holobind._types import ProgressCallback
    from holobind.training import loop as trainer
    from holobind.training.learning import Callbacks

app = typer.Typer()

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A directory, a file, or the name of a fetched dataset.", show_default=False),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `holobind train` wrote.")]
K = Annotated[int, typer.Option("-k", min=1, help="How many labels.")]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Rounds over the training data.  \\[default: 5 to 30, by its size]")
]
TimeLimit = Annotated[float | None, typer.Option(min=0, help="Seconds that training may take.")]
TEXT = "Text networks: cnn, lstm"
Seed = Annotated[int, typer.Option(min=0, help="Every random choice follows from it.")]


@app.command()
def train(
    data: Data,
    network: Annotated[
        str | None, typer.Option(help="linear, fc (hidden layers), or from texts: cnn, lstm.  \\[default: linear]")
    ] = None,
    head: Annotated[str | None, typer.Option(help="holographic or linear.  \\[default: holographic]")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="ridge (closed form), softmax, query, query-abs, regression, bce.  \\[default: ridge; fc...: softmax]"
        ),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="Numbers in the output.  \\[default: up to 1024, by labels]")
    ] = None,
    codebook: Annotated[str | None, typer.Option(help="orbit or random label vectors.  \\[default: orbit]")] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Sizes of hidden layers.  \\[default: 512,512; cnn: 512; lstm: 256]")
    ] = None,
    linear_skip: Annotated[
        bool, typer.Option("--wide", help="fc beside the closed form, which it then improves.")
    ] = False,
    dropout: Annotated[
        float | None, typer.Option(help="Share of hidden units left out.  \\[default: 0; cnn, lstm: 0.5]")
    ] = None,
    feature_dropout: Annotated[
        float | None, typer.Option(help="Share of features left out.  \\[default: 0; cnn: 0.25; lstm: 0.2]")
    ] = None,
    l2: Annotated[float | None, typer.Option(help="Penalty of the closed form.  \\[default: by validation]")] = None,
    rare_label_boost: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="0 for frequent labels (P@k), 0.2 for rare ones (PSP@k).  \\[default: 0.1]"),
    ] = None,
    knn_weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Share of the errors on near rows to add; 0 keeps no rows, no trees.  \\[default: by validation]",
        ),
    ] = None,
    epochs: Epochs = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows of a step.  \\[default: 32 to 512]")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Its peak.  \\[default: 0.003; fc: 0.001]")] = None,
    feature_learning_rate: Annotated[
        float | None,
        typer.Option(help="That of the layer on features.  \\[default: the learning rate if given; fc: 0.01]"),
    ] = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    text: Annotated[
        bool | None,
        typer.Option(
            "--text/--features",
            help="Make features of the texts, or take the data's.  \\[default: texts in the closed form]",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="word, or bpe: parts of words.  \\[default: word]", rich_help_panel=TEXT)
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=3, help="Different tokens, at most.  \\[default: 50,000]", rich_help_panel=TEXT)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens read of a text.  \\[default: 500]", rich_help_panel=TEXT)
    ] = None,
    word_vectors: Annotated[
        Path | None, typer.Option(help="Start from this file of GloVe, word2vec or fastText.", rich_help_panel=TEXT)
    ] = None,
    embedding_dim: Annotated[
        int | None, typer.Option(min=1, help="Numbers in a word's vector.  \\[default: 300]", rich_help_panel=TEXT)
    ] = None,
    filters: Annotated[
        int | None, typer.Option(min=1, help="Of cnn, of each width.  \\[default: 128]", rich_help_panel=TEXT)
    ] = None,
    hidden_size: Annotated[
        int | None, typer.Option(min=1, help="Of lstm, in each direction.  \\[default: 256]", rich_help_panel=TEXT)
    ] = None,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed, ...  \\[default: 32-true]")] = None,
    out: Annotated[Path, typer.Option(help="The model.")] = Path("model.safetensors"),
    log: Annotated[Path | None, typer.Option(help="Add a line of JSON for each epoch to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw loss and validation into this PNG.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue where the same command was stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model that ranks labels, and measure it if the data has a test part.

    Without options it solves a linear network in closed form, in seconds, and lets it recall its errors on near rows.

    Examples:

        holobind train bibtex

        holobind train reviews.jsonl --out reviews.safetensors

        holobind train bibtex --network fc --loss query --dim 400 --plot curves.png

        holobind train bibtex --network fc --epochs 50 --resume

        holobind train reviews.jsonl --network cnn --embedding 100 --longest 200

        torchrun --nproc-per-node 2 -m holobind train bibtex --network fc
    """
    import holobind as hb
    from holobind.cli import plots
    from holobind.cli.describe import kind, measures, size, validation
    from holobind.data import load

    chosen = {
        "network": network,
        "head": head,
        "loss": loss,
        "dim": dim,
        "codebook": codebook,
        "hidden": _sizes(hidden),
        "dropout": dropout,
        "feature_dropout": feature_dropout,
        "l2": l2,
        "rare_label_boost": rare_label_boost,
        "knn_weight": knn_weight,
        "text": text,
        "tokenizer": tokenizer,
        "vocab_size": vocab_size,
        "max_tokens": max_tokens,
        "word_vectors": word_vectors,
        "embedding_dim": embedding_dim,
        "filters": filters,
        "hidden_size": hidden_size,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "feature_learning_rate": feature_learning_rate,
        "time_limit": time_limit,
        "precision": precision,
    }
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    config = hb.ModelConfig(**given, linear_skip=linear_skip, seed=seed)
    checkpoint = out.with_name(f"{out.name}.checkpoint")
    for file in (out, log, plot):
        if file is not None:
            check_writable(file)
    if checkpoint.exists() and not resume and not config.solved:
        raise FileError(f"{checkpoint} is of a run that was stopped; continue it with --resume, or remove it")
    began = time.perf_counter()
    with progress() as tell:
        dataset = load(data, progress=tell)
        watch = _watch(tell, checkpoint=checkpoint, resume=resume, log=log)
        metadata = {"data": dataset.name, "holobind": hb.__version__}
        try:
            model = hb.learn(
                dataset.train, config, label_names=dataset.label_names, tfidf=dataset.tfidf, metadata=metadata, watch=watch
            )
        except Stopped as stopped:
            raise _ended(
                f"stopped; {checkpoint} holds the run: repeat the command with --resume to continue"
            ) from stopped
        if not first_process():
            return
        found = None
        if dataset.test is not None:
            found = model.evaluate(dataset.test, dataset=dataset.name, progress=tell)
            model.metadata["test"] = found.as_json()
        tell(f"writing {out}", 0.0)
        model.save(out)
        if plot:
            plots.curves(model.metadata, plot)
    if not config.solved:
        checkpoint.unlink(missing_ok=True)
    told = {
        "path": str(out),
        "bytes": out.stat().st_size,
        "seconds": round(time.perf_counter() - began, 2),
        "training seconds": model.metadata["seconds"],
        "validation": validation(model.metadata),
        "test": model.metadata.get("test"),
    }
    if as_json:
        print_json(told)
        return
    print_rich(f"{out}: {kind(model)}, {size(told['bytes'])}")
    print_rich(
        f"trained on {len(dataset.train):,} points in {told['training seconds']:.1f} s, {told['seconds']:.1f} s in all"
    )
    if told["validation"]:
        print_rich("validation: " + ", ".join(f"{name} {value}" for name, value in told["validation"].items()))
    if found is not None:
        print_rich(f"test, {found.points:,} points: {measures(model.metadata['test'])}")


@app.command()
def evaluate(model: ModelFile, data: Data, k: K = 5, as_json: Json = False) -> None:
    """Measure a model on the test part of a dataset, or on its only part.

    Examples:

        holobind evaluate model.safetensors bibtex

        holobind evaluate model.safetensors new.jsonl -k 10 --json
    """
    import holobind as hb

    loaded = hb.load(model)
    with progress() as tell:
        dataset = hb.data.load(data, progress=tell)
        if dataset.tfidf is not None and not loaded.reads_texts:
            raise DataError(f"{data} has only texts, and this model reads features; train one on texts")
        part = dataset.train if dataset.test is None else dataset.test
        found = loaded.evaluate(part, k, label_names=dataset.label_names, dataset=dataset.name, progress=tell)
    if as_json:
        print_json(
            {
                "model": str(model),
                "data": str(data),
                "part": "only" if dataset.test is None else "test",
                **found.as_json(),
            }
        )
    else:
        print_rich(found.table())


@app.command()
def predict(
    model: ModelFile,
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A file, packed or not; - for standard input.")],
    k: K = 5,
    names: Annotated[
        bool, typer.Option("--names/--numbers", help="Say labels by name, where the model has names.")
    ] = True,
    threshold: Annotated[float, typer.Option(help="Leave out labels with scores not above this.")] = -math.inf,
    form: Annotated[
        str | None, typer.Option("--format", help="text, jsonl or xml.  \\[default: told by the first line]")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Answer a bad line with its error and go on.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write here, not to standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answers are JSON in any case.")] = False,
) -> None:
    """Rank labels for every line of a stream: a line of JSON for each, in order, in constant memory.

    Lines are texts, JSON like {"text": "..."} or {"features": {"12": 0.5}}, or XML-Repository lines like `12:0.5 40:1`.

    Examples:

        echo "read json file path" | holobind predict model.safetensors -

        holobind predict model.safetensors test.txt.xz --numbers --out labels.jsonl

        holobind predict model.safetensors new.jsonl -k 10 --threshold 0.2 --skip-bad
    """
    import holobind as hb
    from holobind.cli import stream
    from holobind.data.sparse_text import PACKED

    if out is not None:
        check_writable(out)
    path = None if str(source) == "-" else source
    loaded = hb.load(model)
    if path is None and sys.stdin.isatty():
        typer.echo("One line in, one line out; Ctrl-D ends.", err=True)
    found = stream.answers(
        loaded,
        stream.chunks(path),
        k,
        form=form,
        where=stream.STDIN if path is None else str(path),
        names=names,
        threshold=threshold,
        on_bad=(lambda error: typer.echo(f"holobind: {error}", err=True)) if skip_bad else None,
    )
    first = next(found, [])  # before the file is opened: a mistake here must not empty it
    file = typer.get_binary_stream("stdout") if out is None else PACKED.get(out.suffix.lower(), open)(out, "wb")
    try:
        for batch in chain([first], found):
            file.write("".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in batch).encode())
            file.flush()
    finally:
        if out is not None:
            file.close()


@app.command()
def inspect(model: ModelFile, as_json: Json = False) -> None:
    """Tell what a model is: its parts, its size beside that with a linear output layer, how it was trained.

    Examples:

        holobind inspect model.safetensors

        holobind inspect model.safetensors --json
    """
    import holobind as hb
    from holobind.cli.describe import description, table

    told = description(hb.load(model))
    told = {"path": str(model), "bytes": model.stat().st_size, **told}
    if as_json:
        print_json(told)
    else:
        print_rich(table(told))


@app.command()
def compare(
    data: Data,
    epochs: Epochs = None,
    time_limit: Annotated[float | None, typer.Option(min=0, help="Seconds that each training may take.")] = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="A directory for compare.json and compare.png.")] = Path("compare"),
    as_json: Json = False,
) -> None:
    """Train linear and holographic output layers side by side: accuracy, size, time to train and to predict.

    Examples:

        holobind compare bibtex

        holobind compare bibtex --epochs 10 --out results --json
    """
    from holobind.cli import plots
    from holobind.cli.compare import compare, table
    from holobind.data import load

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out} is not a directory and cannot be made one ({error.strerror}); name another") from error
    for name in ("compare.json", "compare.png"):
        check_writable(out / name)
    with progress() as tell:
        dataset = load(data, progress=tell)
        try:
            rows = compare(
                dataset, epochs=epochs, time_limit=time_limit, seed=seed, watch=lambda name: _watch(tell, f"{name}: ")
            )
        except Stopped as stopped:
            raise _ended("stopped; nothing is written") from stopped
    told = {"data": dataset.name, "points": len(dataset.train), "labels": dataset.n_labels, "rows": rows}
    title = f"{dataset.name}: {len(dataset.train):,} points, {dataset.n_labels:,} labels"
    plots.comparison([row for row in rows if "refused" not in row], out / "compare.png", title)
    (out / "compare.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(told)
        return
    print_rich(f"{out / 'compare.png'} and {out / 'compare.json'} written")
    for row in rows:
        if "refused" in row:
            print_rich(f"{row['name']}: {row['refused']}")
    print_rich(table(rows, title))


def _watch(tell: "ProgressCallback", name: str = "", **where: Any) -> "Callbacks":
    """Reports of the solver and of the trainer as one bar."""
    from holobind.training.learning import Callbacks

    def training(at: "trainer.TrainState", plan: "trainer.TrainConfig") -> None:
        share = (at.epoch + at.step / max(at.steps, 1)) / plan.epochs
        if plan.time_limit is not None:
            share = max(share, at.seconds / plan.time_limit)
        share = min(share, 1.0)
        measured = (
            f", {plan.measure} {at.history[-1][plan.measure]:.2f}" if plan.measure in (at.history or [{}])[-1] else ""
        )
        left = round(at.seconds * (1 - share) / share) if share else 0
        epoch = min(at.epoch + 1, plan.epochs)
        tell(
            f"{name}epoch {epoch}/{plan.epochs}, loss {at.loss:.4g}{measured}, {at.rows_a_second:,.0f} samples/s, "
            f"{left // 60}:{left % 60:02} left",
            share,
        )

    return Callbacks(
        solving=lambda stage, share: tell(f"{name}solving: {stage}", share),
        training=training if first_process() else None,
        **where,
    )


def _sizes(hidden: str | None) -> tuple[int, ...] | None:
    if hidden is None:
        return None
    parts = hidden.split(",")
    if not all(part.strip().isdecimal() and len(part.strip()) < 10 for part in parts):
        raise OptionError(f"--hidden wants sizes with commas between them, such as 512,512; got {hidden[:40]!r}")
    return tuple(int(part) for part in parts)


def _ended(message: str) -> typer.Exit:
    if first_process():
        typer.echo(f"holobind: {message}", err=True)
    return typer.Exit(130)
