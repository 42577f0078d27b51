"""`holobind serve`: labels over HTTP."""

import os
import secrets
import sys
import webbrowser
from dataclasses import replace
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
            envvar="HOLOBIND_TOKEN", help="Token that requests need; teaching and reloading always do.", metavar="TEXT"
        ),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Answer without a token, on any address; teaching still needs one.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name of this server, as of a proxy; repeat it.", metavar="NAME")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that may read answers; repeat it.", metavar="ORIGIN")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Directory of corrections and of the models that learned them.", metavar="DIR")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Learned model files to keep, for each model.")] = 5,
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
    browser: Annotated[bool, typer.Option(help="Open the page of --demo, where there is a display.")] = True,
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
    if demo and token is None:  # everybody on this machine may ask; whoever started it may also teach
        token, open_to_all = secrets.token_urlsafe(18), True
        shown = f"#token={token}"
    else:
        shown = ""
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
        keep=keep,
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
            typer.echo(f"holobind: serving at {address}{shown}", err=True)
        if demo and browser:
            open_page(f"{address}{shown}")

    with TemporaryDirectory(prefix="holobind-demo-") as folder:
        paths = models or [Path(folder) / "python-calls.safetensors"]
        if demo:
            with progress() as report:
                train_demo(paths[0], report)
            settings = replace(settings, journal=journal or Path(folder) / "journal")
        run(paths, settings, say)


def open_page(address: str) -> bool:
    """Open an address in the browser of the user, where there is a display; whether that was tried."""
    has_display = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(has_display) and webbrowser.open(address)


def train_demo(path: Path, on_progress: "ProgressCallback") -> None:
    """Train a model of the calls in Python functions, as `make demo` does, and write it."""
    import holobind as hb
    from holobind import data

    on_progress("reading Python functions", 0.0)
    dataset = data.python_calls()
    callbacks = hb.Callbacks(on_solve=on_progress)
    config = hb.ModelConfig(update=True)  # the page can teach it
    model = hb.learn(dataset.train, config, label_names=dataset.label_names, tfidf=dataset.tfidf, callbacks=callbacks)
    model.save(path)
