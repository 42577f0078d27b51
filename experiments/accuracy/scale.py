"""Very many labels: the default model, and FC with each head for the same time, on data of the shape of Amazon-670K.

    .venv/bin/python experiments/accuracy/scale.py [--scale 0.1] [--seconds 300]

The data is `holobind.data.synthetic("amazon-670k", scale)`: label and feature frequencies follow the power laws of
Amazon-670K, and the features of a row are drawn from those of its labels. Every model is trained in a process of its
own, which reports its peak memory. "default" and "FC" have no options and end by themselves. The other FC have the
paper's two hidden layers of 512 and train for --seconds; the linear head has binary cross-entropy, as in the paper, or
a softmax. The last line printed is JSON.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import holobind as hb

PAPER = {"network": "fc", "hidden": (512, 512)}
MODELS = {
    "default": {},
    "FC": {"network": "fc"},
    "FC, linear head, bce": PAPER | {"head": "linear", "loss": "bce"},
    "FC, linear head, softmax": PAPER | {"head": "linear", "loss": "softmax"},
    "FC, holographic head, softmax": PAPER | {"loss": "softmax", "dim": 3000},
}
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")


def train(name, scale, seconds):
    """Train and evaluate one model in this process."""
    data = hb.data.synthetic("amazon-670k", scale=scale, seed=0)
    data_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed = "hidden" in MODELS[name]
    train_config = hb.TrainConfig(time_limit=seconds, epochs=1000, patience=0) if timed else hb.TrainConfig()
    began, used = time.perf_counter(), time.process_time()
    model = hb.learn(data.train, hb.ModelConfig(**MODELS[name]), train_config)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    began = time.perf_counter()
    found = model.evaluate(data.test)
    return {metric: round(found[metric], 2) for metric in METRICS} | {
        "seconds": round(wall, 1),
        "CPU seconds": round(cpu, 1),
        "predicted rows/s": round(len(data.test) / (time.perf_counter() - began), 1),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "of them data MB": data_kb // 1024,
        "parameters": model.sizes()["parameters"],
        "labels": model.n_labels,
        "rows": len(data.train),
        "features": data.train.X.shape[1],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="fraction of Amazon-670K's rows, features and labels")
    parser.add_argument("--seconds", type=float, default=300.0, help="training time of each FC")
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(train(options.model[0], options.scale, options.seconds)))
        return
    found = {}
    for name in options.model:
        arguments = ["--scale", str(options.scale), "--seconds", str(options.seconds), "--model", name, "--alone"]
        done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=False)
        found[name] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.returncode}
        print(name, found[name], flush=True)
    print(json.dumps({"scale": options.scale, "seconds": options.seconds, "models": found}))


if __name__ == "__main__":
    main()
