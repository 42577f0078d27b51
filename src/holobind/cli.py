"""The command line: one function per verb, each a single library call; its docstring is its help.

A user's mistake (a `HolobindError`) prints one line and exits with 2; our own mistakes keep their traceback.
Results go to stdout, progress to stderr.
"""

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

import holobind
from holobind import data_cli
from holobind.errors import HolobindError

app = typer.Typer(
    name="holobind",
    help="Symbolic algebra on vectors, and output layers for very many labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"holobind {holobind.__version__}")
        raise typer.Exit


app.add_typer(data_cli.app, name="data")
for verb in entry_points(group="holobind.verbs"):
    app.add_typer(verb.load(), name=verb.name)


def main() -> None:
    try:
        app()
    except HolobindError as error:
        typer.echo(f"holobind: {error}", err=True)
        sys.exit(2)
