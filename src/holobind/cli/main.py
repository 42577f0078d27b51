"""The command line. Each verb is one function that makes one library call; its docstring is its help text.

An error of the user (a `HolobindError` or a wrong option) prints one line to stderr and exits with code 2. Ctrl-C exits
with code 130. Any other exception is a bug and keeps its traceback. Results go to stdout, progress to stderr.
"""

import sys
from typing import Annotated, NoReturn

import typer

import holobind
from holobind.cli import compare as compare_cli
from holobind.cli import data as data_cli
from holobind.cli import inspect as inspect_cli
from holobind.cli import predict as predict_cli
from holobind.cli import symbols as symbols_cli
from holobind.cli import train as train_cli
from holobind.cli.plugins import add_plugins
from holobind.errors import HolobindError

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


for verbs in (symbols_cli, train_cli, predict_cli, inspect_cli, compare_cli):
    app.add_typer(verbs.app)
app.add_typer(data_cli.app, name="data")
add_plugins(app)


# Click's base class of errors in options and arguments. Releases of typer keep click in different places.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        exit_code = app(standalone_mode=False)
    except HolobindError as error:
        _stop(str(error))
    except typer.Abort:
        _stop("stopped", 130)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a command group without a verb shows its help
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        command = getattr(getattr(error, "ctx", None), "command_path", "holobind")
        _stop(f"{error.format_message().rstrip('.')}; see {command} --help")  # type: ignore[attr-defined]
    sys.exit(exit_code if isinstance(exit_code, int) else 0)


def _stop(message: str, code: int = 2) -> NoReturn:
    """Print an error as one line and exit."""
    typer.echo(f"holobind: {' '.join(message.split())}", err=True)
    sys.exit(code)
