"""`holobind data ...`: look at datasets, convert them, make them, fetch them. One function per verb."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind.cli.terminal import Json, print_json, progress

if TYPE_CHECKING:
    from holobind.data import Dataset

app = typer.Typer(help="Look at datasets, convert them, make them, fetch them.", no_args_is_help=True)
make = typer.Typer(help="Make a dataset that needs no download.", no_args_is_help=True)
app.add_typer(make, name="make")

OneBased = Annotated[bool, typer.Option("--one-based", help="The ids of features and labels in the text start at 1.")]
To = Annotated[str, typer.Option("--to", help="xml, svmlight, npz, text, tsv or jsonl.")]
Packing = Annotated[str, typer.Option("--packing", help="Pack the files: gz, xz or bz2.")]


@app.command()
def stats(
    path: Annotated[Path, typer.Argument(help="A directory, a file, or the name of a fetched dataset.")],
    plot: Annotated[Path | None, typer.Option("--plot", help="Write histograms to this PNG.")] = None,
    one_based: OneBased = False,
    as_json: Json = False,
) -> None:
    """Describe a dataset, side by side with the paper's eight.

    Examples:

        holobind data stats bibtex

        holobind data stats train.txt.gz --one-based --json

        holobind data stats bibtex --plot bibtex.png
    """
    from holobind import data

    with progress() as tell:
        dataset = data.load(path, one_based=one_based, progress=tell)
        found = data.statistics(dataset)
        if plot:
            data.plot(dataset, plot)
    if as_json:
        print_json({"dataset": found, "paper": data.paper_table(), "plot": str(plot) if plot else None})
    else:
        _print_table(found, data.paper_table())


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A directory or a file in any format.")],
    target: Annotated[Path, typer.Argument(help="A new directory, or a file whose ending says the format.")],
    to: Annotated[str | None, typer.Option("--to", help="xml, svmlight, npz, text, tsv or jsonl.")] = None,
    packing: Packing = "",
    one_based: OneBased = False,
    as_json: Json = False,
) -> None:
    """Read a dataset in whatever format it is, and write it in another.

    Examples:

        holobind data convert bibtex bibtex-npz --to npz

        holobind data convert train.svm.bz2 train.txt --one-based

        holobind data convert records.jsonl records --to text --packing xz
    """
    from holobind import data

    with progress() as tell:
        dataset = data.convert(source, target, to, packing=packing, one_based=one_based, progress=tell)
    _report(dataset, target, as_json)


@make.command("python-calls")
def make_python_calls(
    packages: Annotated[
        list[str] | None, typer.Option("--packages", help="Installed packages to read, by the name you import.")
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    out: Annotated[Path, typer.Option("--out", help="The new directory.")] = Path("python-calls"),
    to: To = "xml",
    packing: Packing = "",
    as_json: Json = False,
) -> None:
    """Make the python-calls corpus: functions by name, arguments and docstring; their labels are the names they call.

    Examples:

        holobind data make python-calls

        holobind data make python-calls --out torch-calls --to jsonl --packages torch scipy
    """
    from holobind import data

    # `--packages torch scipy`: the option takes the first name, the others arrive as arguments.
    asked = [*(packages or ()), *(more or ())]
    with progress() as tell:
        dataset = data.python_calls(asked or ["stdlib"], progress=tell)
        tell(f"writing {out}", 0.0)
        data.write(dataset, out, to, packing=packing)
    _report(dataset, out, as_json)


@make.command("synthetic")
def make_synthetic(
    name: Annotated[str, typer.Argument(help="The published dataset to follow, such as eurlex-4k.")],
    scale: Annotated[float, typer.Option("--scale", help="Multiplies points, features and labels.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another dataset.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="The new directory. [default: synthetic-NAME]")] = None,
    to: To = "xml",
    packing: Packing = "",
    as_json: Json = False,
) -> None:
    """Make a dataset with the statistics of a published one, and structure that can be learned.

    Examples:

        holobind data make synthetic eurlex-4k

        holobind data make synthetic amazon-670k --scale 0.1 --to npz --out big
    """
    from holobind import data

    with progress() as tell:
        dataset = data.synthetic(name, scale=scale, seed=seed, progress=tell)
        place = out or Path(dataset.name)
        tell(f"writing {place}", 0.0)
        data.write(dataset, place, to, packing=packing)
    _report(dataset, place, as_json)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="One of the paper's eight datasets, such as eurlex-4k.")],
    file: Annotated[Path | None, typer.Option("--file", help="The archive or directory you downloaded.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Download the archive from here; resumes.")] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", help="What the archive must have.")] = None,
    as_json: Json = False,
) -> None:
    """Get a public dataset into the cache directory, checked against its published statistics.

    Without --file or --url it says which page to open, because the host asks for a click in a browser.

    Examples:

        holobind data fetch eurlex-4k

        holobind data fetch eurlex-4k --file ~/Downloads/Eurlex.zip

        holobind data fetch eurlex-4k --url https://example.org/eurlex.zip --sha256 9f86d0...
    """
    from holobind import data

    with progress() as tell:
        place = data.fetch(name, file, url=url, sha256=sha256, progress=tell)
    if as_json:
        print_json({"name": data.published(name).key, "path": str(place)})
    else:
        typer.echo(place)


def _report(dataset: "Dataset", place: Path, as_json: bool) -> None:
    from holobind import data

    found = data.statistics(dataset)
    if as_json:
        print_json({"path": str(place), **found})
    else:
        points = f"{found['train points']} + {found['test points']} points"
        typer.echo(f"{place}: {points}, {found['features']} features, {found['labels']} labels")


def _print_table(found: dict[str, Any], paper: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = list(paper[0])
    table = Table(*(c.replace(" ", "\n", 1) for c in columns))
    for row in (found, *paper):
        cells = [f"{row[c]:.2f}" if isinstance(row[c], float) else str(row[c]) for c in columns]
        table.add_row(*cells, style="bold" if row is found else None, end_section=row is found)
    console = Console()
    console.print(table)
    console.print(
        f"{found['features a point']:.1f} features a point (density {found['density']:.3%}); "
        f"{found['tail share']:.1%} of labels have fewer than 10 training points, {found['unseen share']:.1%} none; "
        f"the most frequent one has {found['most frequent label']}; "
        f"{found['points without labels']} points have no label"
    )
