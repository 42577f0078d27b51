"""The command line: one function per verb, each a single library call; its docstring is its help.

A user's mistake (a `HolobindError`) prints one line and exits with 2; our own mistakes keep their traceback.
Results go to stdout, progress to stderr.
"""

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import holobind
from holobind.cli import data as data_cli
from holobind.cli import models as model_cli
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


@app.command()
def ask(
    statement: Annotated[
        str | None, typer.Argument(help="Such as 'red*cat + blue*dog'; without it, a conversation.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option("--query", "-q", help="What to ask; may be given again.")] = None,
    has: Annotated[list[str] | None, typer.Option(help="A part to look for, such as 'red*cat'.")] = None,
    dim: Annotated[int, typer.Option(min=1, help="Numbers in a vector.")] = 512,
    seed: Annotated[int, typer.Option(help="The vectors follow from it and the names.")] = 0,
    k: Annotated[int, typer.Option("-k", min=1, help="Candidates to show.")] = 5,
    vocabulary: Annotated[Path | None, typer.Option(help="A saved vocabulary to start from.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each answer.")] = False,
) -> None:
    """Say something in one vector, and ask it questions.

    Examples:

      holobind ask "red*cat + blue*dog" --query red

      holobind ask "first*(name*Jane + age*30) + second*(name*Joe + age*33)" --query "first*name"

      holobind ask                            a conversation; type help
    """
    from holobind.symbols.repl import Conversation
    from holobind.symbols.vocabulary import Vocabulary

    names = Vocabulary.load(vocabulary) if vocabulary else Vocabulary(dim, seed)
    conversation = Conversation(names, k, as_json)
    if statement is not None:
        shown = conversation.say(statement)
        if not query and not has:
            typer.echo(shown)
    for asked in query or ():
        typer.echo(conversation.ask(asked))
    for part in has or ():
        typer.echo(conversation.has(part))
    if query or has:
        return
    typer.echo("Ask with a ? at the end; help tells more, quit ends.", err=True)
    while (line := _typed("> ")) is not None and (reply := conversation.reply(line)) is not None:
        typer.echo(reply)


def _typed(prompt: str) -> str | None:
    """The next line of standard input, None at its end; a prompt only where somebody reads it."""
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        return None


app.add_typer(model_cli.app)
app.add_typer(data_cli.app, name="data")
for verb in entry_points(group="holobind.verbs"):
    app.add_typer(verb.load(), name=verb.name)


# Click's own word for a wrong option or argument; typer keeps it in different places in different releases.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    try:
        ended = app(standalone_mode=False)
    except HolobindError as error:
        _stop(str(error))
    except typer.Abort:
        _stop("stopped", 130)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been asked for by giving nothing
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        place = getattr(getattr(error, "ctx", None), "command_path", "holobind")
        _stop(f"{error.format_message().rstrip('.')}; see {place} --help")  # type: ignore[attr-defined]
    sys.exit(ended if isinstance(ended, int) else 0)


def _stop(message: str, code: int = 2) -> NoReturn:
    typer.echo(f"holobind: {' '.join(message.split())}", err=True)
    sys.exit(code)
