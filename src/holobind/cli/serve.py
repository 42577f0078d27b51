"""`holobind serve`: labels over HTTP."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from holobind.cli.arguments import Quiet
from holobind.cli.terminal import progress
from holobind.errors import OptionError

if TYPE_CHECKING:
    from holobind._types import ProgressCallback

app = typer.Typer()
LIMITS = "Limits"
MISSING = "holobind serve needs packages that are not installed ({}); pip install 'holobind[serve]'"


@app.command()
def serve(
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="MODEL ...", help="Model files.", show_default=False)
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Train a small model of Python functions, and serve it.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address; others than loopback need --token or --open.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="HOLOBIND_TOKEN", help="Token that requests need; learning and reloading always do.", metavar="TEXT"
        ),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Listen on other addresses than loopback without a token.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name of this server, as of a proxy; repeat it.", metavar="NAME")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that may read answers; repeat it.", metavar="ORIGIN")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Directory that keeps corrections (learn).", metavar="DIR")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="URIs and names of labels, for clients of Annif.", metavar="FILE")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the texts, for clients of Annif.")] = "en",
    max_body: Annotated[
        int, typer.Option(min=1, help="Bytes of a request.", rich_help_panel=LIMITS, metavar="BYTES")
    ] = 8 << 20,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.", rich_help_panel=LIMITS)] = 1024,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests at a time.", rich_help_panel=LIMITS)] = 256,
    max_queue: Annotated[int, typer.Option(min=1, help="Rows that wait.", rich_help_panel=LIMITS)] = 4096,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds of a request.", rich_help_panel=LIMITS, metavar="SECONDS")
    ] = 30.0,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP: a page for people, an API for programs.

    The page is at /, the API at /v1/models and, as Annif has it, at
    /v1/projects; /openapi.json describes both. SIGHUP reads the model
    files again without dropping a request; SIGTERM answers what runs,
    and ends.

    Examples:

        holobind serve model.safetensors

        holobind serve --demo

        HOLOBIND_TOKEN=... holobind serve a.safetensors b.safetensors --host 0.0.0.0 --port 80

        curl localhost:8000/v1/models/model/predict --json '{"text": "roast a turkey", "k": 3}'
    """
    from holobind.serve.settings import Settings

    if bool(models) == demo:
        raise OptionError("--demo serves its own model; leave out MODEL" if demo else "give model files, or --demo")
    settings = Settings(
        host=host,
        port=port,
        token=token,
        open=open_to_all,
        hosts=tuple(allow_host or ()),
        origins=tuple(cors or ()),
        vocabulary=vocabulary,
        language=language,
        journal=journal,
        max_body_bytes=max_body,
        max_rows=max_rows,
        max_requests=max_requests,
        max_queued_rows=max_queue,
        timeout_seconds=timeout,
    )
    try:
        from holobind.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holobind"):
            raise
        raise OptionError(MISSING.format(error.name)) from error

    def say(address: str) -> None:
        if not quiet:
            typer.echo(f"holobind: serving at {address}", err=True)

    with TemporaryDirectory(prefix="holobind-demo-") as folder:
        paths = models or [Path(folder) / "python-calls.safetensors"]
        if demo:
            with progress() as report:
                train_demo(paths[0], report)
        run(paths, settings, say)


def train_demo(path: Path, on_progress: "ProgressCallback") -> None:
    """Train a model of the calls in Python functions, as `make demo` does, and write it."""
    import holobind as hb
    from holobind import data

    on_progress("reading Python functions", 0.0)
    dataset = data.python_calls()
    callbacks = hb.Callbacks(on_solve=on_progress)
    model = hb.learn(dataset.train, label_names=dataset.label_names, tfidf=dataset.tfidf, callbacks=callbacks)
    model.save(path)
