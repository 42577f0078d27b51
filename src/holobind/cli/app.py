"""All verbs of the command line. Each is one function that makes one library call; its docstring is its help text."""

from typing import Annotated

import typer

import holobind
from holobind.cli import compare as compare_cli
from holobind.cli import data as data_cli
from holobind.cli import explain as explain_cli
from holobind.cli import inspect as inspect_cli
from holobind.cli import predict as predict_cli
from holobind.cli import report as report_cli
from holobind.cli import restrict as restrict_cli
from holobind.cli import serve as serve_cli
from holobind.cli import symbols as symbols_cli
from holobind.cli import train as train_cli
from holobind.cli import update as update_cli
from holobind.cli import warm as warm_cli
from holobind.cli.plugins import add_plugins

app = typer.Typer(
    name="holobind",
    help="Extreme multi-label classification with holographic output layers; symbolic algebra on vectors (VSA).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"holobind {holobind.__version__}")
        raise typer.Exit


MODEL_VERBS = (
    *(train_cli, predict_cli, explain_cli, report_cli, inspect_cli, restrict_cli, compare_cli),
    *(update_cli, serve_cli, warm_cli),
)
for verbs in (symbols_cli, *MODEL_VERBS):
    app.add_typer(verbs.app)
app.add_typer(data_cli.app, name="data")
add_plugins(app)
