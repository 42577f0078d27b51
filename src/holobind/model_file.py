"""A model as one file; a damaged or hostile file is refused.

The file is a `_storage` file of kind "model". Its header:

    network    {"class": "ridge_knn", "fc", "cnn", "lstm" or "wide_and_deep", and its `config`}; the last has the config
               of its network on tokens as "deep", with its class
    head       {"class": "holographic", "dim", "codebook", "seed", "loss", "trainable"} or {"class": "linear", "loss"}
    normalise  whether rows of features are scaled to length 1
    tfidf      of a model with tf-idf features: {"analyzer": "word", "char" or "plain"}. Files of 0.1 have none:
               plain if no word of the vocabulary ends in a star
    vectorizer of a model with features of scikit-learn's, in place of tfidf: {"kind", "settings"}
    encoder    of a model with sentence embeddings beside these features: {"name", "digest", "dim", "weight"}
    tokenizer  of a text network: {"kind", "lowercase", "max_tokens", "merges": how many}
    label_text of a model with label texts: {"weights"}, and {"encoder"} as above where they have embeddings
    extra_scores  of a trained network with neighbours or label trees: the config of `ExtraScores`
    calibration   where rows were held out: parameters of the probabilities (`calibration.Calibration`)
    metadata   how the model was made: data, options, metrics; any JSON. "timings" are not stored, so that a model
               that is trained again has the same bytes

and its tensors:

    network.*, head.*   the parameters, in any floating-point precision; what the seed draws again is not stored.
                        Of ridge_knn: quantised weights, the training rows and label sets of the kNN index, and the
                        trees, and what updates need (`RidgeKnn`, `Forest`, `LabelTree` and `UpdateState` list their
                        tensors)
    extra_scores.*      training rows, label sets and label trees (`ExtraScores`)
    label_counts        (L) int32, how often each label occurs in training
    n_rows              (1) int64, the number of training rows
    label_order         (L) int32, the label of each of the head's outputs, where the head orders labels differently
    label_names         where known: UTF-8 lines, compressed, as uint8
    allowed             (ceil(L / 8)) uint8: a bit for each label, 1 if it may be predicted, where not all may
    words, idf          of a model with features of texts: its vocabulary as lines, compressed, and (words) float32;
                        prefixes of words end in a star. A vectorizer may have no idf, or neither
    label_text.*        of a model with label texts: words, idf as above; text_counts (labels) int32, how many texts a
                        label has; offsets (texts + 1) int64, ids int32 and values float16 of their tf-idf vectors as
                        CSR; suggestions.offsets, .ids and .values likewise, a row for each label of which the columns
                        are labels; embeddings (texts, dim) float16
    tokens, merges      of a text network: its tokenizer's, as lines, compressed; a merge is two tokens and a blank

A file is refused unless every number in it is finite, every tensor has the shape that the rest of the file implies, and
nothing is left over. `_storage` bounds what compressed tensors and lines unpack to. The tables that a network builds
for prediction (`Network.working_bytes`) may take 1 GB, or 256 times the size of a larger file.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holobind import _storage as storage
from holobind import label_text_file, metrics
from holobind._processes import ALONE, Processes
from holobind._types import IntArray
from holobind.calibration import Calibration
from holobind.codebooks._fingerprint import without_fingerprints
from holobind.data import Tfidf
from holobind.errors import DataError, FileError, HolobindError, OptionError
from holobind.heads import Head
from holobind.heads.build import head_from_config
from holobind.label_filter import Allowed
from holobind.label_text import LabelText
from holobind.networks import FC, AttentionLstm, Network, WideAndDeep, XmlCnn
from holobind.ridge_knn import ExtraScores, RidgeKnn
from holobind.ridge_knn.extra_scores import solved_path

if TYPE_CHECKING:
    from holobind.data.encoder_features import EncoderFeatures
    from holobind.data.tokenizer import Tokenizer
    from holobind.data.vectorizers import SklearnFeatures

VERSION = 2
NETWORKS: dict[str, type[Network]] = {
    network.kind: network for network in (RidgeKnn, FC, XmlCnn, AttentionLstm, WideAndDeep)
}
MIN_WORKING_BYTES = 1 << 30  # of memory that a model of any size may take for prediction
MAX_WORKING_RATIO = 256  # of that memory and the size of the file, for larger ones
# The errors that a senseless header causes while a model is built from it.
HEADER_ERRORS = (HolobindError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


class Stored(Protocol):
    """The attributes of a `model.Model` that a file stores."""

    network: Network
    head: Head
    frequencies: metrics.Frequencies
    normalise: bool
    tfidf: "Tfidf | SklearnFeatures | None"
    encoder: "EncoderFeatures | None"
    tokenizer: "Tokenizer | None"
    max_tokens: int
    label_names: list[str] | None
    metadata: dict[str, Any]
    calibration: Calibration | None
    extra_scores: ExtraScores | None
    allowed: Allowed | None
    label_text: LabelText | None

    @property
    def label_order(self) -> IntArray | None: ...


def write(path: str | Path, model: Stored, dtype: torch.dtype, processes: Processes = ALONE) -> None:
    """Write a model whole or not at all; `dtype` is the precision of its matrices.

    processes   that have the same model: they share its compression, and the first one writes it
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"dtype must be torch.float32, float16 or bfloat16; got {dtype}")
    network = model.network
    if NETWORKS.get(network.kind) is not type(network):
        raise OptionError(
            f"a model with a network of yours, {type(network).__name__}, cannot be saved by holobind; "
            "save its state_dict"
        )
    tensors: dict[str, Tensor] = {
        "label_counts": torch.from_numpy(model.frequencies.counts.astype(np.int32)),
        "n_rows": torch.tensor([model.frequencies.n_rows]),
    }
    head_state = without_fingerprints(model.head.state_dict(prefix="head."))  # the header has the same facts
    state = network.state_dict(prefix="network.") | head_state
    extra = model.extra_scores
    if extra is not None:
        state |= extra.state_dict(prefix="extra_scores.")
    for name, tensor in state.items():
        tensors[name] = tensor.cpu()
        if not tensor.is_floating_point():
            continue
        if tensor.ndim > 1:
            tensors[name] = tensors[name].to(dtype)
        if not storage.is_finite(tensors[name]):
            why = "they do not fit, take torch.float32" if storage.is_finite(tensor) else "training has failed"
            raise DataError(f"{name} holds NaN or infinite numbers in {tensors[name].dtype}: {why}")
    if model.label_order is not None:
        tensors["label_order"] = torch.from_numpy(model.label_order.astype(np.int32))
    if model.allowed is not None:
        tensors["allowed"] = torch.from_numpy(np.packbits(model.allowed))
    if model.label_names is not None:
        tensors["label_names"] = storage.pack_lines(model.label_names)
    if model.tfidf is not None and model.tfidf.words:
        tensors["words"] = storage.pack_lines(model.tfidf.words)
    if model.tfidf is not None and model.tfidf.idf is not None:
        tensors["idf"] = torch.from_numpy(model.tfidf.idf)
    header: dict[str, Any] = {
        "network": {"class": network.kind, **network.config()},
        "head": model.head.config(),
        "normalise": model.normalise,
        "metadata": {name: value for name, value in model.metadata.items() if name != "timings"},
    }
    if extra is not None:
        header["extra_scores"] = extra.config()
    if model.calibration is not None:
        header["calibration"] = model.calibration.as_json()
    if isinstance(model.tfidf, Tfidf):
        header["tfidf"] = {"analyzer": model.tfidf.analyzer}
    elif model.tfidf is not None:
        header["vectorizer"] = model.tfidf.config()
    if model.encoder is not None:
        header["encoder"] = model.encoder.config()
    if model.label_text is not None:
        header["label_text"], packed = label_text_file.pack(model.label_text)
        tensors |= packed
    if network.reads_tokens:
        if model.tokenizer is None:
            raise OptionError("a model with a text network is saved with its tokenizer; give it one")
        header["tokenizer"], packed = _pack_tokenizer(model.tokenizer, model.max_tokens)
        tensors |= packed
    compress = [f"network.{name}" for name in network.compressed_tensors]
    compress += [name for name in label_text_file.COMPRESSED if name in tensors]
    compress += [] if extra is None else [f"extra_scores.{name}" for name in extra.compressed_tensors]
    storage.write(path, "model", VERSION, header, tensors, compress, processes)


def read(path: str | Path) -> dict[str, Any]:
    """The arguments of `model.Model` from a file."""
    header, tensors = storage.read(path, "model", VERSION)
    try:
        return _assemble(header, tensors, Path(path).stat().st_size)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except HEADER_ERRORS as error:
        message = " ".join(str(error).split())[:200]
        raise FileError(f"{path} is not a model as holobind writes them ({type(error).__name__}: {message})") from error


def _assemble(header: dict[str, Any], tensors: dict[str, Tensor], file_bytes: int) -> dict[str, Any]:
    config, head_config = dict(header["network"]), dict(header["head"])
    kind = config.pop("class")
    if kind not in NETWORKS:
        raise FileError(f"it has a network {str(kind)[:40]!r}; this holobind knows {', '.join(NETWORKS)}")
    token_config = config["deep"] if kind == WideAndDeep.kind else config
    if any(isinstance(value, list) and len(value) > len(tensors) for value in token_config.values()):
        raise FileError("its header has more layers than it has weights")
    frequencies = _take_frequencies(tensors)
    n_labels = len(frequencies.counts)
    order = _take_label_order(tensors, kind, n_labels)
    allowed = _take_allowed(tensors, n_labels) if "allowed" in tensors else None
    names = _take_lines(tensors, "label_names", n_labels) if "label_names" in tensors else None
    tfidf, encoder = _take_text_features(header, tensors, config.get("n_features"))
    label_text = label_text_file.take(header["label_text"], tensors, n_labels) if "label_text" in header else None
    if label_text is not None and (tfidf is None or not NETWORKS[kind].closed_form):
        raise FileError("it has label texts for a network that does not read texts")
    tokenizer = {}
    if NETWORKS[kind].reads_tokens:
        embedding = "network.embedding.weight" if token_config is config else "network.deep.embedding.weight"
        tokenizer = _take_tokenizer(header["tokenizer"], tensors, token_config["vocab_size"], embedding)
        if (tfidf is None) != (token_config is config):
            raise FileError(
                "it has features of texts for a network that reads tokens alone, or none for one that needs them"
            )
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "head": {}}
    if "extra_scores" in header:
        groups["extra_scores"] = {}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group not in groups:
            raise FileError(f"it holds {name[:60]!r}, which no model has")
        groups[group][rest] = tensor
    with torch.device("meta"):  # shapes first: sizes that only the header claims must not take memory
        network = NETWORKS[kind](**config)
        extra = _extra_scores(header["extra_scores"], network, config) if "extra_scores" in header else None
    max_bytes = max(MIN_WORKING_BYTES, MAX_WORKING_RATIO * file_bytes)
    working_bytes = network.working_bytes() + (0 if extra is None else extra.working_bytes())
    if working_bytes > max_bytes:
        raise FileError(
            f"it would take {working_bytes / 1e9:.1f} GB to predict with; "
            f"a file of {file_bytes / 1e6:.1f} MB may take {max_bytes / 1e9:.1f} GB"
        )
    storage.check_tensors("network", dict(network.state_dict()), groups["network"])
    network.load_state_dict(groups["network"], assign=True)
    network.check_loaded()
    if extra is not None:
        storage.check_tensors("extra_scores", dict(extra.state_dict()), groups["extra_scores"])
        extra.load_state_dict(groups["extra_scores"], assign=True)
        extra.check_loaded()
        if extra.n_labels != n_labels or head_config.get("class") != "holographic":
            raise FileError("its extra_scores belong to other labels, or to a head that takes none")
    if isinstance(network, RidgeKnn):
        _check_solved_for(network, head_config, n_labels)
    head = head_from_config(head_config, network.out_features, n_labels, groups["head"])
    if extra is not None and extra.adds_to_output:
        solved_path(network, head)
    if not isinstance(header["normalise"], bool) or not isinstance(header["metadata"], dict):
        raise FileError("its header has other types than it should")
    return {
        "network": network,
        "head": head,
        "frequencies": frequencies,
        "normalise": header["normalise"],
        "tfidf": tfidf,
        "encoder": encoder,
        "label_names": names,
        "label_order": order,
        "metadata": header["metadata"],
        "calibration": Calibration.from_json(header["calibration"]) if "calibration" in header else None,
        "extra_scores": extra,
        "allowed": allowed,
        "label_text": label_text,
        **tokenizer,
    }


def _extra_scores(extra: dict[str, Any], network: Network, config: dict[str, Any]) -> ExtraScores:
    """The extra scores of a trained network, without values."""
    if network.closed_form or extra["n_features"] != (config.get("vocab_size") or network.n_features):
        raise FileError("its extra_scores do not fit its network")
    return ExtraScores(**extra)


def _check_solved_for(network: RidgeKnn, head: dict[str, Any], n_labels: int) -> None:
    """Refuse a head other than the one that the closed form was solved for."""
    if network.n_labels != n_labels:
        raise FileError(f"its network was solved for {str(network.n_labels)[:20]} labels; it has {n_labels}")
    if head.get("codebook") != network.codebook_name:
        raise FileError(f"its network was solved for other label vectors than {str(head.get('codebook'))[:20]!r}")
    if (head.get("loss"), head.get("seed")) != ("softmax", network.seed):
        raise FileError("its head has another loss or seed than its network was solved for")


# Each of these takes its tensors out of `tensors`, so that what no model has is left.


def _take_frequencies(tensors: dict[str, Tensor]) -> metrics.Frequencies:
    counts, n_rows = _take(tensors, "label_counts", torch.int32), _take(tensors, "n_rows", torch.int64)
    if len(n_rows) != 1 or not 0 <= int(counts.min()) <= int(counts.max()) <= int(n_rows[0]):
        raise FileError("its label_counts and n_rows cannot be those of any data")
    return metrics.Frequencies(counts.numpy().astype(np.int64), int(n_rows[0]))


def _take_label_order(tensors: dict[str, Tensor], kind: str, n_labels: int) -> IntArray | None:
    if "label_order" not in tensors:
        return None
    order = _take(tensors, "label_order", torch.int32).numpy().astype(np.int64)
    if NETWORKS[kind].closed_form or not np.array_equal(np.sort(order), np.arange(n_labels)):
        raise FileError("its label_order does not have every label once, or belongs to a network that has none")
    return order


def _take_allowed(tensors: dict[str, Tensor], n_labels: int) -> Allowed:
    packed = _take(tensors, "allowed", torch.uint8).numpy()
    bits = np.unpackbits(packed).astype(bool)
    if len(packed) != -(-n_labels // 8) or not bits[:n_labels].any() or bits[n_labels:].any():
        raise FileError(f"its allowed labels are not a bit for each of {n_labels} labels, with one 1 at least")
    return bits[:n_labels]


def _take_text_features(
    header: dict[str, Any], tensors: dict[str, Tensor], n_features: Any
) -> tuple["Tfidf | SklearnFeatures | None", "EncoderFeatures | None"]:
    """How texts become features: tf-idf or a vectoriser of scikit-learn, and embeddings beside it."""
    encoder = _encoder(header["encoder"]) if "encoder" in header else None
    dim = 0 if encoder is None else encoder.dim
    if "vectorizer" in header:
        from holobind.data.vectorizers import SklearnFeatures

        if type(n_features) is not int or n_features <= dim:
            raise FileError("its vectorizer belongs to a network without features")
        weights = _take(tensors, "idf", torch.float32).numpy() if "idf" in tensors else None
        names = _take_lines(tensors, "words", n_features - dim) if "words" in tensors else []
        vectorizer = SklearnFeatures(**header["vectorizer"], words=names, idf=weights)
        _check_n_features(vectorizer.n_features + dim, n_features)
        return vectorizer, encoder
    if "words" in tensors:
        idf = _take(tensors, "idf", torch.float32)
        words = _take_lines(tensors, "words", len(idf))
        has_prefixes = any(word.endswith("*") for word in words)
        settings = header.get("tfidf", {"analyzer": "word" if has_prefixes else "plain"})
        _check_n_features(len(words) + dim, n_features)
        return Tfidf(words, idf.numpy(), **settings), encoder
    if encoder is not None:
        raise FileError("it has an encoder without a vocabulary")
    return None, None


def _encoder(config: dict[str, Any]) -> "EncoderFeatures":
    from holobind.data.encoder_features import EncoderFeatures

    return EncoderFeatures(**config)


def _check_n_features(n: int, n_features: Any) -> None:
    if n != n_features:
        raise FileError(f"it has {n} words for a network of {str(n_features)[:20]} features")


def _pack_tokenizer(tokenizer: "Tokenizer", max_tokens: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    merges = [f"{a} {b}" for a, b in tokenizer.merges]
    config = {
        "kind": tokenizer.kind,
        "lowercase": tokenizer.lowercase,
        "max_tokens": max_tokens,
        "merges": len(merges),
    }
    tensors = {"tokens": storage.pack_lines(tokenizer.tokens)}
    return config, tensors | ({"merges": storage.pack_lines(merges)} if merges else {})


def _take_tokenizer(
    config: dict[str, Any], tensors: dict[str, Tensor], vocab_size: Any, embedding: str
) -> dict[str, Any]:
    """The tokenizer and max_tokens. The tokenizer is as large as the embedding, whose shape is checked later."""
    from holobind.data.tokenizer import Tokenizer

    max_tokens, n_merges = config["max_tokens"], config["merges"]
    rows = tensors[embedding].shape[:1]
    if type(max_tokens) is not int or max_tokens < 1 or type(n_merges) is not int or (vocab_size,) != tuple(rows):
        raise FileError(f"its tokenizer does not fit a network of {str(vocab_size)[:20]} tokens")
    if not 0 <= n_merges <= vocab_size:
        raise FileError(f"its tokenizer has {str(n_merges)[:20]} merges for {vocab_size} tokens")
    merges = [line.split(" ") for line in _take_lines(tensors, "merges", n_merges)] if n_merges else []
    if any(len(pair) != 2 for pair in merges):
        raise FileError("its merges are not two tokens each")
    tokens = _take_lines(tensors, "tokens", vocab_size)
    tokenizer = Tokenizer(tokens, [(a, b) for a, b in merges], config["kind"], config["lowercase"])
    return {"tokenizer": tokenizer, "max_tokens": max_tokens}


def _take(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    tensor = tensors.pop(name)
    if tensor.dtype != dtype or tensor.ndim != 1 or not len(tensor):
        raise FileError(f"its {name} has {tensor.dtype} of shape {tuple(tensor.shape)}")
    return storage.finite_numbers(name, tensor) if dtype.is_floating_point else tensor


def _take_lines(tensors: dict[str, Tensor], name: str, n: int) -> list[str]:
    lines = storage.unpack_lines(_take(tensors, name, torch.uint8), n)
    if lines is None:
        raise FileError(f"its {name} are damaged, or not {n}, or too long")
    return lines
