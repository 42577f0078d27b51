"""`holobind paper NAME`: one command for each figure and table of the paper."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Reproduce a figure or table of the paper.", no_args_is_help=True)

MAX_SEED = 2**62  # as of every seed of the library
MAX_TRIALS = 10_000

Out = Annotated[
    Path, typer.Option(help="Folder for NAME.json, NAME.png and, of tables, the finished cells in NAME.jsonl.")
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of all random numbers.")]
Quick = Annotated[bool, typer.Option("--quick", help="Use a smaller grid; takes less than a minute.")]
Trials = Annotated[int, typer.Option(min=1, max=MAX_TRIALS, help="Random statements for each point; the paper has 10.")]
GrowthTrials = Annotated[int, typer.Option(min=2, max=MAX_TRIALS, help="Random statements for each point.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder that holds one folder for each dataset, by name. Default: $HOLOBIND_DATA."),
]
Only = Annotated[list[str] | None, typer.Option(help="Use only this dataset; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]

DEFAULT_OUT = Path("paper-results")


class Preset(StrEnum):
    """Whose settings the accuracy table has."""

    paper = "paper"
    authors = "authors"


# Experiments by their options: name, help text, arguments of the example.
MEASURED = (
    (
        "response",
        "Figure 1: mean responses to present and absent pairs, naive and projected, d = 256.",
        "--out results",
    ),
    (
        "response-spread",
        "Appendix: mean and standard deviation of the responses for 4 to 65,536 pairs, d = 256.",
        "--out results",
    ),
    (
        "worked-example",
        "Appendix: the dog and its parts, Jane and Joe: queries to one vector and its responses.",
        "--out results",
    ),
    (
        "appendix-algebra",
        "Appendix: the expansions at d = 2 and 3, and the variances of their terms by simulation.",
        "",
    ),
    (
        "vsa-selection",
        "Appendix: the four criteria by which the paper chose HRR, measured, with tensor products as a row.",
        "",
    ),
    ("compression", "Table 2: the weights that the holographic head saves, for all eight datasets.", ""),
    (
        "speed",
        "Table 3: the time of a training epoch of FC and HRR-FC, at the shapes of all eight datasets.\n\n"
        "The largest shapes need several gigabytes of memory; nothing else should run at the same time.\n\n"
        "The times of CNN are in another table: holobind paper speed-cnn",
        "--quick",
    ),
    (
        "speed-cnn",
        "Appendix: the time of execution and optimisation of CNN and HRR-CNN, at the shapes of four datasets.\n\n"
        "The largest shape needs several gigabytes of memory; nothing else should run at the same time.",
        "--quick",
    ),
    (
        "inference",
        "Time and memory of the top 5 of up to a million labels: orbit, random and dense, and faiss if installed.",
        "--quick",
    ),
)
SAMPLED = (
    (
        "capacity",
        "Appendix: how many pairs a vector holds at 3 % errors, for every system and d = 25 to 8100.",
        "--quick --out results",
    ),
    (
        "retrieval-error",
        "Appendix: error rate of retrieval by the number of pairs, for every system and d.",
        "--quick --out results",
    ),
)
TRAINED = (
    (
        "ablation-projection",
        "Ablation: HRR-FC without the projection, compared with rankings that ignore the features.",
        "--quick",
    ),
    (
        "ablation-regression",
        "Ablation: the squared error instead of the query loss, compared with rankings that ignore the features.",
        "--quick",
    ),
    ("balance", "The factor between J_p and J_n, from 0 to 10; the paper has none.", "--quick"),
    ("learned-labels", "Table 5: learned label vectors compared with fixed ones.", "--data DIR"),
    ("learned-present-missing", "Appendix: learned p and m compared with fixed ones, by d'.", "--data DIR"),
    ("network-size", "Table 4: more hidden layers and units for FC and HRR-FC.", "--quick"),
    ("dimension", "Figure 2: P@5 by d', with both codebooks and both losses.", "--data DIR"),
)


def _help(name: str, text: str, example: str) -> str:
    return f"{text}\n\nExample: {f'holobind paper {name} {example}'.strip()}"


def _add_measured(name: str, text: str, example: str) -> None:
    @app.command(name, help=_help(name, text, example))
    def measured(out: Out = DEFAULT_OUT, seed: Seed = 0, quick: Quick = False, as_json: AsJson = False) -> None:
        _run(name, out, as_json, seed=seed, quick=quick)


def _add_sampled(name: str, text: str, example: str) -> None:
    @app.command(name, help=_help(name, text, example))
    def sampled(
        out: Out = DEFAULT_OUT, seed: Seed = 0, quick: Quick = False, trials: Trials = 10, as_json: AsJson = False
    ) -> None:
        _run(name, out, as_json, seed=seed, quick=quick, trials=trials)


def _add_trained(name: str, text: str, example: str) -> None:
    @app.command(name, help=_help(name, text, example))
    def trained(
        out: Out = DEFAULT_OUT,
        seed: Seed = 0,
        quick: Quick = False,
        data: Data = None,
        only: Only = None,
        as_json: AsJson = False,
    ) -> None:
        _run(name, out, as_json, seed=seed, quick=quick, data=data, only=only)


for _experiment in MEASURED:
    _add_measured(*_experiment)
for _experiment in SAMPLED:
    _add_sampled(*_experiment)


@app.command("capacity-growth")
def capacity_growth(
    out: Out = DEFAULT_OUT, seed: Seed = 0, quick: Quick = False, trials: GrowthTrials = 100, as_json: AsJson = False
) -> None:
    """Appendix: how capacity grows with d, its exponent with an interval, and the ratios of capacities and errors.

    Example: holobind paper capacity-growth --quick --out results
    """
    _run("capacity-growth", out, as_json, seed=seed, quick=quick, trials=trials)


@app.command()
def accuracy(
    out: Out = DEFAULT_OUT,
    seed: Seed = 0,
    quick: Quick = False,
    data: Data = None,
    only: Only = None,
    preset: Annotated[
        Preset, typer.Option(help="paper: the paper's text. authors: the settings of the released code.")
    ] = Preset.paper,
    as_json: AsJson = False,
) -> None:
    """Table 1: P@k and PSP@k of FC, HRR-FC and holobind's default model on all available datasets.

    CNN and LSTM are trained where a dataset has its texts; many long texts take hours.

    --data names a folder with datasets of the paper; two corpora made from installed Python code are always available.

    Example: holobind paper accuracy --data DIR --only Bibtex
    """
    _run(
        "authors" if preset is Preset.authors else "accuracy",
        out,
        as_json,
        seed=seed,
        quick=quick,
        data=data,
        only=only,
    )


for _experiment in TRAINED:
    _add_trained(*_experiment)


@app.command("all")
def run_all(
    out: Out = DEFAULT_OUT, seed: Seed = 0, quick: Quick = False, data: Data = None, as_json: AsJson = False
) -> None:
    """Run all experiments. Finished ones are not computed again, so it can be interrupted and run again.

    Example: holobind paper all --out results
    """
    from holobind_paper import datasets, registry

    for found in registry.run_all(out, seed, quick, datasets.chosen_folder(data)):
        _print(found, out, as_json)


@app.command()
def plan(out: Out = DEFAULT_OUT, seed: Seed = 0, quick: Quick = False, data: Data = None) -> None:
    """List the networks that `holobind paper all` trains, in order, with what is finished and the hours that are left.

    Example: holobind paper plan --out experiments/results --data DIR
    """
    from holobind_paper import datasets, registry

    planned = registry.plan(out, seed, quick, datasets.chosen_folder(data))
    for one in planned:
        hours = f"{one.hours:.2f} h" if one.hours else "-"
        typer.echo(f"{one.finished}/{one.seeds}  {hours:>7}  {one.table}: {one.job.source.name}, {one.job.setup}")
    typer.echo(f"about {sum(one.hours for one in planned):.1f} hours are left")


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder with the JSON files of the experiments.")] = DEFAULT_OUT,
    page: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("reproduction.md"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures of trained tables, from finished cells.")
    ] = None,
) -> None:
    """Write a page that compares all results with the paper's.

    Example: holobind paper report --results paper-results --page reproduction.md
    """
    from holobind_paper import report

    report.run(results, page, figures)
    typer.echo(f"{page} written")


@app.command()
def demo(out: Out = Path("demo"), seed: Seed = 0) -> None:
    """Bind the red cat and the blue dog in one vector, query it, and draw the capacity of a vector.

    Example: holobind paper demo --out demo
    """
    from holobind_paper import demo, result

    demo.run(result.make_folder(out), seed)


def _run(name: str, out: Path, as_json: bool, **options: Any) -> None:
    from holobind_paper import datasets, registry

    if name in registry.TRAINED_TABLES:
        options["data"] = datasets.chosen_folder(options["data"])
    _print(registry.run(name, out, **options), out, as_json)


def _print(data: dict[str, Any], out: Path, as_json: bool) -> None:
    from holobind_paper import result

    if as_json:
        typer.echo(json.dumps(data))
        return
    for key, value in data.get("agreement", {}).items():
        typer.echo(f"{key.replace('_', ' ')}: {value}")
    result.print_result(data)
    typer.echo(f"{out / data['experiment']}.json: {data['seconds']} s")
