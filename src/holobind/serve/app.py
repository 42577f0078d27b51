"""The application: all routes behind the guard."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import holobind
from holobind.serve import annif, api, symbols
from holobind.serve.guard import Guard
from holobind.serve.problems import Problem, add_handlers
from holobind.serve.service import Service
from holobind.serve.settings import Settings

PAGES = {"/": "index.html", "/symbols": "symbols.html"}
FILES = {
    "index.html": "text/html; charset=utf-8",
    "symbols.html": "text/html; charset=utf-8",
    **dict.fromkeys(
        ("common.js", "labels.js", "why.js", "files.js", "batch.js", "symbols.js"), "text/javascript; charset=utf-8"
    ),
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "inter.woff2": "font/woff2",
    "inter-licence.txt": "text/plain; charset=utf-8",
}


def build(paths: Sequence[Path], settings: Settings) -> FastAPI:
    """The application over some model files."""
    service = Service(paths, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="holobind",
        version=holobind.__version__,
        description="Labels of texts and features, for very many labels.",
        lifespan=lifespan,
        docs_url=None,  # the pages of these descriptions would load scripts from other servers
        redoc_url=None,
    )
    app.state.service = service
    add_handlers(app)
    app.include_router(api.routes(service))
    app.include_router(annif.routes(service))
    app.include_router(symbols.routes(service))
    _add_pages(app)
    app.add_middleware(Guard, settings=settings, metrics=service.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _add_pages(app: FastAPI) -> None:
    """The pages and their files, read once; the list of names is the whole of what can be asked for."""
    folder = resources.files("holobind.serve") / "static"
    contents = {name: (folder / name).read_bytes() for name in FILES}

    def page(name: str) -> Response:
        return Response(contents[name], media_type=FILES[name], headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def labels_page() -> Response:
        return page(PAGES["/"])

    @app.get("/symbols", include_in_schema=False)
    async def symbols_page() -> Response:
        return page(PAGES["/symbols"])

    @app.get("/static/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in contents:
            raise Problem(404, "there is no such file")
        return page(name)
