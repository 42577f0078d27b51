"""Very many labels: the default config, and FC with either head for the same time, on data in the shape of Amazon-670K.

    .venv/bin/python experiments/accuracy/scale.py [--scale 0.1] [--seconds 300]

The data is `holobind.data.synthetic("amazon-670k", scale)`: labels and features by its power laws, features drawn from
those of a point's labels. Every model is trained in a process of its own, which tells its peak memory. The networks
have the paper's two hidden layers of 512 and --seconds to train; the linear head has binary cross-entropy, as in the
paper. The last line printed is JSON.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import holobind as hb

MODELS = {
    "default": {},
    "FC, linear head, bce": {"network": "fc", "head": "linear", "loss": "bce"},
    "FC, linear head, softmax": {"network": "fc", "head": "linear", "loss": "softmax"},
    "FC, holographic head, softmax": {"network": "fc", "loss": "softmax", "dim": 3000},
}
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")


def train(name, scale, seconds):
    data = hb.data.synthetic("amazon-670k", scale=scale, seed=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = MODELS[name]
    if options:
        options = options | {"time_limit": seconds, "epochs": 1000, "patience": 0}
    began, used = time.perf_counter(), time.process_time()
    model = hb.learn(data.train, hb.ModelConfig(**options))
    took, cpu = time.perf_counter() - began, time.process_time() - used
    began = time.perf_counter()
    found = model.evaluate(data.test)
    told = {measure: round(found[measure], 2) for measure in MEASURES}
    return told | {
        "seconds": round(took, 1),
        "CPU seconds": round(cpu, 1),
        "predicted rows/s": round(len(data.test) / (time.perf_counter() - began), 1),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "of them data MB": before // 1024,
        "parameters": model.sizes()["parameters"],
        "labels": model.n_labels,
        "points": len(data.train),
        "features": data.train.X.shape[1],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=300.0, help="that each network may train")
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(train(chosen.model[0], chosen.scale, chosen.seconds)))
        return
    found = {}
    for name in chosen.model:
        options = ["--scale", str(chosen.scale), "--seconds", str(chosen.seconds), "--model", name, "--alone"]
        done = subprocess.run([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True, check=False)
        found[name] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.returncode}
        print(name, found[name], flush=True)
    print(json.dumps({"scale": chosen.scale, "seconds": chosen.seconds, "models": found}))


if __name__ == "__main__":
    main()
