"""Labels over HTTP: `holobind serve MODEL ...`, an ASGI application for models (extra `holobind[serve]`).

from holobind.serve import Settings, create_app
app = create_app([Path("model.safetensors")], Settings())

The way of a request:

    guard      host, token, limits, time, security headers, metrics
    api        /v1/models ...       annif   /v1/projects ...       symbols   /v1/symbols       pages   /
    batching   requests of many clients become one batch, in one thread
    registry   the model files that are served, and their replacement while requests run
"""

from typing import TYPE_CHECKING

from holobind.serve.settings import Settings as Settings

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI


def create_app(models: "list[Path]", settings: Settings | None = None) -> "FastAPI":
    """The application that serves some model files; each has the id that its name gives it (`registry`)."""
    from holobind.serve.app import build

    return build(models, settings or Settings())
