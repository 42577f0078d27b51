"""The process of a server: uvicorn, and its signals.

SIGTERM, SIGINT   no new connections; requests that run are answered; end
SIGHUP            read all model files again, without dropping a request
"""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from holobind.errors import OptionError
from holobind.serve import create_app
from holobind.serve.service import Service
from holobind.serve.settings import Settings

KEEP_ALIVE_SECONDS = 10
BACKLOG = 256


class Server(uvicorn.Server):
    """A server that says when it listens, and is not ready any more from the moment it gets a signal to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.service, self.on_start = service, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # collections do not go through names, words and models, which stay: that takes 0.1 s
        if not self.should_exit:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.ready = False
        super().handle_exit(sig, frame)


def run(paths: list[Path], settings: Settings, on_start: Callable[[str], None] | None = None) -> None:
    """Serve until a signal ends it.

    on_start   called with the address, once requests are answered
    """
    listening = bind(settings.host, settings.port)
    app = create_app(paths, settings)
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=4 * settings.max_requests,  # connections; the guard counts requests
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain_seconds),
        ws="none",
        forwarded_allow_ips="",
        lifespan="on",
    )

    def started() -> None:
        if on_start is not None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            on_start(f"http://{host}:{settings.port}/")

    server = Server(config, service, started)

    async def serve() -> None:
        if sys.platform != "win32":
            loop, running = asyncio.get_running_loop(), set()

            def reload() -> None:
                task = loop.create_task(service.reload_all())
                running.add(task)
                task.add_done_callback(running.discard)

            loop.add_signal_handler(signal.SIGHUP, reload)
        await server.serve([listening])

    # uvicorn sends the signal that ended it again, once requests are answered: SIGTERM then ends nothing.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop, where it is installed; it takes half the time of the usual one."""
    try:
        import uvloop
    except ModuleNotFoundError:  # Windows
        return None
    return uvloop.new_event_loop


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address, before models are loaded; an OptionError if it is taken, or is none of this machine."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"cannot listen at {host} port {port}: {reason}; choose another host or port") from error
    return made
