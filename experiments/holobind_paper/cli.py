"""`holobind paper NAME`: every figure and table of the paper by one command."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Redo a figure or table of the paper.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder for NAME.json, NAME.png and the finished cells of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="Every random number follows from it.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller grid, for a first look; under a minute.")]
Trials = Annotated[int, typer.Option(min=1, help="Statements drawn at each point; the paper has 10.")]
Data = Annotated[Path | None, typer.Option(help="Folder with a folder for each dataset you have, by its name.")]
Only = Annotated[list[str] | None, typer.Option(help="Only this dataset; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as one line of JSON.")]

HERE = Path("paper-results")


@app.command()
def response(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Figure 1: the mean answer to present and absent pairs, naive and projected, d = 256.

    Example: holobind paper response --out results
    """
    _run("response", out, as_json, seed=seed, quick=quick)


@app.command()
def capacity(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, trials: Trials = 10, as_json: AsJson = False
) -> None:
    """Appendix: how many pairs a vector holds at 3 % errors, for every system and d = 25 to 8100.

    Example: holobind paper capacity --quick --out results
    """
    _run("capacity", out, as_json, seed=seed, quick=quick, trials=trials)


@app.command("retrieval-error")
def retrieval_error(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, trials: Trials = 10, as_json: AsJson = False
) -> None:
    """Appendix: how often a distractor beats the truth, over the number of pairs, for every system and d.

    Example: holobind paper retrieval-error --quick --out results
    """
    _run("retrieval-error", out, as_json, seed=seed, quick=quick, trials=trials)


@app.command("response-spread")
def response_spread(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Appendix: mean and standard deviation of the answers for 4 to 65,536 pairs, d = 256.

    Example: holobind paper response-spread --out results
    """
    _run("response-spread", out, as_json, seed=seed, quick=quick)


@app.command("worked-example")
def worked_example(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Appendix: the dog and its parts, and Jane and Joe: what is asked, and what one vector answers.

    Example: holobind paper worked-example --out results
    """
    _run("worked-example", out, as_json, seed=seed, quick=quick)


@app.command()
def compression(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Table 2: the weights that the holographic head saves, for all eight datasets.

    Example: holobind paper compression
    """
    _run("compression", out, as_json, seed=seed, quick=quick)


@app.command()
def speed(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Table 3: the time of a training epoch, FC beside HRR-FC, at the shapes of all eight datasets.

    The largest shapes take several gigabytes of memory, and nothing else should run beside it.

    The CNN's times are a table of their own: holobind paper speed-cnn

    Example: holobind paper speed --quick
    """
    _run("speed", out, as_json, seed=seed, quick=quick)


@app.command("speed-cnn")
def speed_cnn(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """Appendix: the time of execution and optimisation, CNN beside HRR-CNN, at the shapes of four datasets.

    The largest shape takes several gigabytes of memory, and nothing else should run beside it.

    Example: holobind paper speed-cnn --quick
    """
    _run("speed-cnn", out, as_json, seed=seed, quick=quick)


@app.command()
def inference(out: Out = HERE, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
    """The top 5 of up to a million labels: orbit, random and dense, and faiss where it is installed.

    Example: holobind paper inference --quick
    """
    _run("inference", out, as_json, seed=seed, quick=quick)


@app.command()
def accuracy(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Table 1: P@1, PSP@1 and the rest of FC and HRR-FC, and of holobind's own set-up, on the datasets there are.

    CNN and LSTM, too, where a dataset has its texts; with many long ones they take hours.

    Datasets of the paper are picked up from --data by name; two made from installed Python code are always there.

    Example: holobind paper accuracy --data DIR --only Bibtex
    """
    _run("accuracy", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("ablation-projection")
def ablation_projection(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Without the projection: HRR-FC with naive vectors, beside rankings that look at no features.

    Example: holobind paper ablation-projection --quick
    """
    _run("ablation-projection", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("ablation-regression")
def ablation_regression(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """The squared error in place of the query loss, beside rankings that look at no features.

    Example: holobind paper ablation-regression --quick
    """
    _run("ablation-regression", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("learned-labels")
def learned_labels(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Table 5: label vectors that are learned, beside fixed ones.

    Example: holobind paper learned-labels --data DIR
    """
    _run("learned-labels", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("learned-present-missing")
def learned_present_missing(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Appendix: p and m learned, beside fixed ones, over d'.

    Example: holobind paper learned-present-missing --data DIR
    """
    _run("learned-present-missing", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("network-size")
def network_size(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Table 4: more layers and hidden units for FC and HRR-FC.

    Example: holobind paper network-size --quick
    """
    _run("network-size", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command()
def dimension(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, only: Only = None, as_json: AsJson = False
) -> None:
    """Figure 2: P@5 over d', with both codebooks and both losses.

    Example: holobind paper dimension --data DIR
    """
    _run("dimension", out, as_json, seed=seed, quick=quick, data=data, only=only)


@app.command("all")
def everything(
    out: Out = HERE, seed: Seed = 0, quick: Quick = False, data: Data = None, as_json: AsJson = False
) -> None:
    """Every figure and table there is; what is finished is not run again, so it can be stopped and resumed.

    Example: holobind paper all --out results
    """
    from holobind_paper import everything

    for found in everything.run(out, seed, quick, data):
        _show(found, out, as_json)


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder with the experiments' JSON files.")] = HERE,
    page: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("reproduction.md"),
) -> None:
    """Write the page that sets all results beside the paper's.

    Example: holobind paper report --results paper-results --page reproduction.md
    """
    from holobind_paper import report

    report.run(results, page)
    typer.echo(f"{page} written")


@app.command()
def demo(out: Out = Path("demo"), seed: Seed = 0) -> None:
    """The red cat and the blue dog, and how many such pairs one vector can hold.

    Example: holobind paper demo --out demo
    """
    from holobind_paper import demo, result

    demo.run(result.folder(out), seed)


def _run(name: str, out: Path, as_json: bool, **options: Any) -> None:
    from holobind_paper import everything

    _show(everything.one(name, out, **options), out, as_json)


def _show(data: dict[str, Any], out: Path, as_json: bool) -> None:
    from holobind_paper import result

    if as_json:
        typer.echo(json.dumps(data))
        return
    for key, value in data.get("agreement", {}).items():
        typer.echo(f"{key.replace('_', ' ')}: {value}")
    result.show(data)
    typer.echo(f"{out / data['experiment']}.json: {data['seconds']} s")
