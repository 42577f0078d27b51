"""What a server allows: addresses, tokens, and limits of every resource that a client can use."""

import ipaddress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holobind.errors import OptionError

MIN_TOKEN_CHARACTERS = 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """Settings of a server. The defaults are safe: loopback alone, no other origins, every resource bounded.

    host, port           where it listens
    token                of requests, in `Authorization: Bearer TOKEN`; None: nobody needs one, and nobody may teach
    open                 answer without a token, on any address; teaching and reloading still need one
    hosts                further values of the Host header that are answered, beside that of `host`
    origins              of pages of other servers that may read answers (CORS)
    vocabulary           file with a URI and a name for each label, for clients of Annif
    language             of the texts, which clients of Annif ask for
    journal              directory of the corrections; None: none are kept, and `learn` answers 501
    keep                 number of learned model files that are kept, for each model
    learn_seconds        how long `learn` waits for the model; then the document is learned after the answer
    max_body_bytes       of a request
    max_text_characters  of a text
    max_rows             of a request
    max_k                labels of a row
    max_explained        explanations of a request: each scores all labels
    max_requests         that run at the same time
    max_buffered_bytes   of the bodies of these requests, together
    max_queued_rows      that wait for a batch
    max_batch_rows       of a batch with several requests
    batch_seconds        how long a batch waits for further requests
    timeout_seconds      of a request, from its first byte to its answer
    drain_seconds        how long requests may run on after SIGTERM
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    open: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    vocabulary: Path | None = None
    language: str = "en"
    journal: Path | None = None
    keep: int = 5
    learn_seconds: float = 15.0
    max_body_bytes: int = 8 << 20
    max_text_characters: int = 1_000_000
    max_rows: int = 1024
    max_k: int = 1000
    max_explained: int = 20
    max_requests: int = 256
    max_buffered_bytes: int = 256 << 20
    max_queued_rows: int = 4096
    max_batch_rows: int = 256
    batch_seconds: float = 0.001
    timeout_seconds: float = 30.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < MIN_TOKEN_CHARACTERS or not self.token.isascii()):
            raise OptionError(f"the token must have at least {MIN_TOKEN_CHARACTERS} ASCII characters; make it longer")
        if not self.is_loopback and self.token is None and not self.open:
            raise OptionError(
                f"host {self.host} can be reached from other machines; give a token, or allow everybody with --open"
            )
        if "*" in self.origins:
            raise OptionError("CORS: name the origins that may read answers, such as https://library.example; got *")

    @property
    def needs_token(self) -> bool:
        """Whether every request needs the token, not only those that change models."""
        return self.token is not None and not self.open

    @cached_property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def answers(self, host: str) -> bool:
        """Whether a request with this Host header is answered.

        A page of another server cannot read from a loopback address through a name of its own (DNS rebinding).
        """
        if not self.is_loopback:
            return True
        name = host.rsplit(":", 1)[0] if not host.endswith("]") and host.count(":") != 0 else host
        return name.strip("[]").lower() in (*LOOPBACK_NAMES, self.host, *self.hosts)
