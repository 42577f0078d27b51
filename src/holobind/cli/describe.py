"""What a model is, in words and numbers."""

from typing import Any

from rich.table import Table

from holobind.heads import LinearHead
from holobind.model import Model
from holobind.networks import AttentionLstm, Network, XmlCnn
from holobind.ridge_knn.network import RidgeKnn


def description(model: Model) -> dict[str, Any]:
    """Everything there is to tell metadata a model, as JSON values."""
    most = model.frequencies.counts.argsort(kind="stable")[::-1][:5].tolist()
    return {
        "kind": kind(model),
        "reads": "texts" if model.reads_texts else "features",
        "features": getattr(model.network, "n_features", None),
        "tokens": model.tokenizer and model.tokenizer.vocab_size,
        "labels": model.n_labels,
        "most frequent labels": most if model.label_names is None else [model.label_names[i] for i in most],
        "training points": model.frequencies.points,
        **model.sizes(),
        "validation": validation(model.metadata),
        "metadata": model.metadata,
    }


def table(told: dict[str, Any]) -> Table:
    """A description, with the "path" and "bytes" of the file, for people."""
    metadata = told["metadata"]
    features = told["features"] or told["tokens"] or 0
    linear, smaller = told["linear output layer"], told["output layer smaller by"]
    rows = {
        "model": told["kind"],
        "reads": f"texts, {features:,} words" if told["reads"] == "texts" else f"rows of {features:,} features",
        "labels": f"{told['labels']:,}; the most frequent are {', '.join(map(str, told['most frequent labels']))}",
        "parameters": f"{told['parameters']:,}, {_less(told['network smaller by'])} than with a linear output layer",
        "output layer": f"{told['output layer']:,}, {_less(smaller)} than a linear one of {linear:,}",
        "trained on": f"{metadata.get('data') or 'data without a name'}, {told['training points']:,} points",
        "seconds": metadata.get("seconds"),
        "seed": metadata.get("config", {}).get("seed"),
        "validation": ", ".join(f"{name} {value}" for name, value in told["validation"].items()),
        "test": measures(metadata.get("test") or {}),
        "written by": f"holobind {metadata['holobind']}" if "holobind" in metadata else None,
    }
    shown = Table(show_header=False, title=f"{told['path']}, {size(told['bytes'])}", title_justify="left")
    for name, value in rows.items():
        if value not in (None, ""):
            shown.add_row(name, str(value))
    return shown


def kind(model: Model) -> str:
    """Network, head and loss in one line."""
    network = _network(model.network)
    if isinstance(model.head, LinearHead):
        head = f"linear head of {model.n_labels:,} labels"
    else:
        book = model.head.drawn[0] if model.head.drawn else "own"
        head = f"holographic head of {model.n_labels:,} labels in {model.head.codebook.dim:,} numbers ({book} codebook)"
    solved = "ridge" in model.metadata and "training" not in model.metadata
    return f"{network}, {head}, {'solved in closed form' if solved else f'{model.head.loss_name} loss'}"


def _network(network: Network) -> str:
    said = network.config() if isinstance(network, XmlCnn | AttentionLstm) else {}
    if isinstance(network, XmlCnn):
        filters = f"{said['filters']} filters of each of the widths {', '.join(map(str, said['widths']))}"
        return f"convolutions over words, {filters}, a hidden layer of {said['bottleneck']}"
    if isinstance(network, AttentionLstm):
        layers = ", ".join(map(str, said["layers"]))
        return f"LSTM of {said['hidden_size']} hidden_size in both directions, attention, hidden layers {layers}"
    if isinstance(network, RidgeKnn):
        errors = f" that recalls its errors on {len(network.row_offsets) - 1:,} rows" if network.knn_weight else ""
        trees = "" if network.forest is None else f" and {len(network.forest.roots)} trees"
        return f"linear network{errors}{trees}"
    hidden = getattr(network, "hidden", ())
    told = f"network with hidden layers {', '.join(map(str, hidden))}" if hidden else "linear network"
    return told if getattr(network, "linear_skip", None) is None else f"{told} and a linear path"


def validation(metadata: dict[str, Any]) -> dict[str, float]:
    """What was measured on rows held out: the best epoch's, or if there were none, the solver's."""
    training, ridge = metadata.get("training"), metadata.get("ridge")
    if isinstance(training, dict) and training["history"]:
        best, measure = training["best epoch"], training["plan"]["measure"]
        held = measure in training["history"][0]
        return {**({measure: round(training["best"], 2)} if held else {}), "epoch": best}
    if ridge:
        tried = [score for _, score in ridge["validation"]]
        chosen = {"l2": float(f"{ridge['l2']:.4g}")}
        if isinstance(metadata.get("knn"), dict):  # what was chosen last, with the codebook that it will have
            chosen["knn_weight"] = metadata["knn"]["knn_weight"]
            tried = [score for *_, score in metadata["knn"]["validation"]] or tried
        return {**({"nDCG@5": round(max(tried), 2)} if tried else {}), **chosen}
    return {}


def measures(found: dict[str, Any]) -> str:
    """The usual measures of an evaluation on one line."""
    asked = [(name, k) for name in ("P", "PSP") for k in (1, 3, 5) if k <= len(found.get(name, ()))]
    return "  ".join(f"{name}@{k} {found[name][k - 1]:.2f}" for name, k in asked)


def size(n: int) -> str:
    return f"{n / 1e6:,.1f} MB" if n >= 1e5 else f"{n / 1e3:,.1f} kB"


def _less(share: float) -> str:
    return f"{share:.1%} fewer" if share >= 0 else f"{-share:.1%} more"
