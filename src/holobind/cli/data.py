"""`holobind data ...`: describe, convert, generate and fetch datasets. One function per verb."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holobind._files import check_outputs
from holobind.cli.arguments import (
    Format,
    Json,
    LabelField,
    LabelNames,
    LabelSeparator,
    MaxUncompressed,
    Quiet,
    TextField,
    byte_size,
    print_description,
)
from holobind.cli.terminal import print_json, progress
from holobind.errors import OptionError

if TYPE_CHECKING:
    from holobind.data import Dataset

app = typer.Typer(help="Describe, convert, generate and fetch datasets.", no_args_is_help=True)
make = typer.Typer(help="Generate a dataset that needs no download.", no_args_is_help=True)
app.add_typer(make, name="make")

OneBased = Annotated[
    bool, typer.Option("--one-based", help="The ids of features and labels in sparse text start at 1.")
]
To = Annotated[str, typer.Option("--to", help="The format: xml, svmlight, npz, text, tsv or jsonl.")]
Compression = Annotated[str, typer.Option("--compression", help="Compress the files: gz, xz or bz2.")]


@app.command()
def stats(
    path: Annotated[Path, typer.Argument(help="A directory, a file, or the name of a fetched dataset.")],
    plot: Annotated[Path | None, typer.Option("--plot", help="Write histograms to this PNG, SVG, PDF or JPEG.")] = None,
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    label_names: LabelNames = None,
    one_based: OneBased = False,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the statistics of a dataset, its first five rows as they were read, and the paper's eight datasets.

    Examples:

        holobind data stats bibtex

        holobind data stats train.txt.gz --one-based --json

        holobind data stats books.csv --text-field title --label-field tags

        holobind data stats bibtex --plot bibtex.png
    """
    from holobind import data
    from holobind.data.formats import input_files

    check_outputs({"--plot": plot}, input_files(path))
    with progress() as on_progress:
        dataset = data.load(
            path,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            one_based=one_based,
            max_uncompressed=max_uncompressed,
            on_progress=on_progress,
        )
        print_description(dataset)
        found = data.statistics(dataset)
        if plot:
            data.plot(dataset, plot)
    if as_json:
        rows = data.first_rows(dataset)
        print_json({"dataset": found, "rows": rows, "paper": data.paper_table(), "plot": str(plot) if plot else None})
    else:
        _print_table(found, data.paper_table())
        _print_rows(data.first_rows(dataset))


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A directory or a file in any format.")],
    target: Annotated[Path, typer.Argument(help="A new directory, or a file whose suffix determines the format.")],
    to: Annotated[str | None, typer.Option("--to", help="The format: xml, svmlight, npz, text, tsv or jsonl.")] = None,
    compression: Compression = "",
    format: Format = None,  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    label_separator: LabelSeparator = None,
    label_names: LabelNames = None,
    one_based: OneBased = False,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Convert a dataset to another format.

    Examples:

        holobind data convert bibtex bibtex-npz --to npz

        holobind data convert train.svm.bz2 train.txt --one-based

        holobind data convert records.jsonl records --to text --compression xz

        holobind data convert books.parquet books.jsonl --label-field tags
    """
    from holobind import data

    with progress() as on_progress:
        dataset = data.convert(
            source,
            target,
            to,
            compression=compression,
            format=format,
            text_field=text_field,
            label_field=label_field,
            label_separator=label_separator,
            label_names=label_names,
            one_based=one_based,
            max_uncompressed=max_uncompressed,
            on_progress=on_progress,
        )
    print_description(dataset)
    _report(dataset, target, as_json)


@make.command("python-calls")
def make_python_calls(
    packages: Annotated[
        list[str] | None, typer.Option("--packages", help="Installed packages to read, named as in `import`.")
    ] = None,
    further_packages: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    split_by: Annotated[
        str, typer.Option("--split-by", help="What is in one split as a whole: module or package.")
    ] = "module",
    out: Annotated[Path, typer.Option("--out", help="The new directory.")] = Path("python-calls"),
    to: To = "xml",
    compression: Compression = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Generate the python-calls corpus from installed packages.

    A point is a function. Its text is its name, arguments and docstring; its labels are the names that it calls.

    Examples:

        holobind data make python-calls

        holobind data make python-calls --out torch-calls --to jsonl --packages torch scipy

        holobind data make python-calls --split-by package
    """
    from holobind import data

    # In `--packages torch scipy` the option takes the first name; the other names arrive as arguments.
    names = [*(packages or ()), *(further_packages or ())]
    with progress() as on_progress:
        dataset = data.python_calls(names or ["stdlib"], split_by=split_by, on_progress=on_progress)
        on_progress(f"writing {out}", 0.0)
        data.write(dataset, out, to, compression=compression)
    _report(dataset, out, as_json)


@make.command("synthetic")
def make_synthetic(
    name: Annotated[str, typer.Argument(help="The published dataset to imitate, such as eurlex-4k.")],
    scale: Annotated[
        float, typer.Option("--scale", help="Factor for the number of points, features and labels.")
    ] = 1.0,
    points: Annotated[
        int | None,
        typer.Option("--points", help="Training points, in place of --scale: drawn and written in blocks, as xml."),
    ] = None,
    features: Annotated[int | None, typer.Option("--features", help="With --points: the number of features.")] = None,
    labels: Annotated[int | None, typer.Option("--labels", help="With --points: the number of labels.")] = None,
    features_per_point: Annotated[
        int | None, typer.Option("--features-per-point", help="With --points: features of a point, on average.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random generator.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="The new directory. [default: synthetic-NAME]")] = None,
    to: To = "xml",
    compression: Compression = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Generate a dataset with the statistics of a published one, and labels that can be learned from the features.

    Examples:

        holobind data make synthetic eurlex-4k

        holobind data make synthetic amazon-670k --scale 0.1 --to npz --out big

        holobind data make synthetic amazon-670k --points 10000000 --features 1000000 --features-per-point 10
    """
    from holobind import data

    if points is not None:
        if scale != 1 or to != "xml" or compression:
            raise OptionError("--points is in place of --scale, and writes plain xml; leave out the other options")
        folder = out or Path(f"synthetic-{name.lower()}")
        with progress() as on_progress:
            found = data.write_synthetic(
                name,
                folder,
                points=points,
                features=features,
                labels=labels,
                features_per_point=features_per_point,
                seed=seed,
                on_progress=on_progress,
            )
        if as_json:
            print_json({"path": str(folder), **found})
        else:
            counts = f"{found['train']} training points, {found['test']} test points"
            typer.echo(f"{folder}: {counts}, {found['features']} features, {found['labels']} labels")
        return
    if any(value is not None for value in (features, labels, features_per_point)):
        raise OptionError("--features, --labels and --features-per-point go with --points")
    with progress() as on_progress:
        dataset = data.synthetic(name, scale=scale, seed=seed, on_progress=on_progress)
        folder = out or Path(dataset.name)
        on_progress(f"writing {folder}", 0.0)
        data.write(dataset, folder, to, compression=compression)
    _report(dataset, folder, as_json)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="One of the paper's eight datasets, such as eurlex-4k.")],
    file: Annotated[Path | None, typer.Option("--file", help="The archive or directory you downloaded.")] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Download the archive from this address. An interrupted download is resumed."),
    ] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", help="Expected checksum of the archive.")] = None,
    allow_http: Annotated[bool, typer.Option("--allow-http", help="Accept addresses without encryption.")] = False,
    max_download: Annotated[
        int | None,
        typer.Option("--max-download", parser=byte_size, metavar="SIZE", help="Largest download.  \\[default: 4 GB]"),
    ] = None,
    max_uncompressed: MaxUncompressed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Install a public dataset in the cache directory, after comparing its size with the published statistics.

    Without --file or --url, print the page to open: the host of these datasets requires a click in a browser.

    Examples:

        holobind data fetch eurlex-4k

        holobind data fetch eurlex-4k --file ~/Downloads/Eurlex.zip

        holobind data fetch eurlex-4k --url https://example.org/eurlex.zip --sha256 9f86d0...
    """
    from holobind import data
    from holobind.data.registry import MAX_DOWNLOAD_BYTES

    found: list[str] = []

    def show_sha256(checksum: str) -> None:
        found.append(checksum)
        typer.echo(f"SHA-256 {checksum}", err=True)

    with progress() as on_progress:
        folder = data.fetch(
            name,
            file,
            url=url,
            sha256=sha256,
            allow_http=allow_http,
            max_download=max_download or MAX_DOWNLOAD_BYTES,
            max_uncompressed=max_uncompressed,
            on_sha256=show_sha256,
            on_progress=on_progress,
        )
    if as_json:
        print_json({"name": data.published(name).key, "path": str(folder), "sha256": found[0] if found else None})
    else:
        typer.echo(folder)


def _report(dataset: "Dataset", folder: Path, as_json: bool) -> None:
    from holobind import data

    found = data.statistics(dataset)
    if as_json:
        print_json({"path": str(folder), **found})
    else:
        points = f"{found['train points']} training points, {found['test points']} test points"
        typer.echo(f"{folder}: {points}, {found['features']} features, {found['labels']} labels")


def _print_table(found: dict[str, Any], paper: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = list(paper[0])
    table = Table(*(column.replace(" ", "\n") for column in columns))
    for row in (found, *paper):
        cells = [f"{row[c]:.2f}" if isinstance(row[c], float) else str(row[c]) for c in columns]
        table.add_row(*cells, style="bold" if row is found else None, end_section=row is found)
    console = Console()
    console.print(table)
    console.print(
        f"{found['features per point']:.1f} features per point (density {found['density']:.3%}); "
        f"{found['tail fraction']:.1%} of labels have fewer than 10 training points, "
        f"{found['unseen fraction']:.1%} have none; "
        f"the most frequent label has {found['most frequent label']} training points; "
        f"{found['points without labels']} points have no label"
    )


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("row", "text" if rows and "text" in rows[0] else "features", "labels", title="first rows, as read")
    for number, row in enumerate(rows, 1):
        labels = " | ".join(str(label) for label in row["labels"]) or "(none)"
        table.add_row(str(number), _cell(row.get("text") or row.get("features", "")), _cell(labels))
    Console().print(table, markup=False)


def _cell(text: str) -> Any:
    """The beginning of a text as it is, whatever brackets it has."""
    from rich.text import Text

    from holobind._checks import printable

    return Text(printable(text, 100))
