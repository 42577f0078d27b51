"""The closed form on several hosts of one core: network namespaces that a switch of a given bandwidth joins.

    .venv/bin/python benchmarks/bench_hosts.py --data ../shared/data/gutenberg-lcsh [--hosts 4] [--gigabits 1]

It needs root and Linux (`ip`, `tc`, from Debian's iproute2). Every host is a network namespace with an address of its
own; a namespace with a bridge joins them, and each host sends at most so many gigabits a second. Nothing outside these
namespaces is changed, and they are removed at the end. First all hosts train one model, as torchrun would start them,
and then one host trains it alone; their scores are compared on 2,000 test rows. Then the hosts solve one ridge
regression twice: with columns shared and every row read by all, and with rows shared, too, so that every product is
exchanged. Bytes are those that each host's interface has sent, beside those that docs/scaling.md predicts. The hosts
share the cores of this machine, so compare CPU seconds, not wall seconds. The last line printed is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from bench_out_of_core import compare

NAME, INTERFACE, PORT = "holobind", "host0", 29_811
L2, ITERATIONS, DIM = 1.0, 8, 1024


@contextmanager
def network(n_hosts, gigabits):
    """Namespaces for the hosts, joined by one with a bridge."""
    switch, hosts = f"{NAME}-switch", [f"{NAME}-{i}" for i in range(n_hosts)]
    for name in (switch, *hosts):
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
    try:
        for name in (switch, *hosts):
            ip("netns", "add", name)
            inside(name, "ip", "link", "set", "lo", "up")
        inside(switch, "ip", "link", "add", "bridge", "type", "bridge")
        inside(switch, "ip", "link", "set", "bridge", "up")
        for i, host in enumerate(hosts):
            inside(switch, "ip", "link", "add", f"port{i}", "type", "veth", "peer", "name", INTERFACE, "netns", host)
            inside(switch, "ip", "link", "set", f"port{i}", "master", "bridge", "up")
            inside(host, "ip", "address", "add", f"{address(i)}/24", "dev", INTERFACE)
            inside(host, "ip", "link", "set", INTERFACE, "up")
            limit = ["rate", f"{gigabits}gbit", "burst", "1mb", "latency", "50ms"]
            inside(host, "tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", *limit)
        yield hosts
    finally:
        for name in (*hosts, switch):
            subprocess.run(["ip", "netns", "del", name], check=False)


def address(i):
    return f"10.77.0.{i + 1}"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def inside(host, *words):
    ip("netns", "exec", host, *words)


def sent_bytes(host):
    """Bytes that the interface of a host has sent."""
    command = ["ip", "netns", "exec", host, "cat", f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"]
    # `ip netns exec` mounts /sys anew, so that it shows the interfaces of the namespace.
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run(hosts, command):
    """Run a command on all hosts: CPU seconds and peak MB of each process, MB sent by each, the first one's output."""
    before, children = [sent_bytes(host) for host in hosts], []
    for rank, host in enumerate(hosts):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
        if len(hosts) > 1:
            ranks = {"WORLD_SIZE": len(hosts), "LOCAL_WORLD_SIZE": 1, "RANK": rank, "LOCAL_RANK": 0}
            ranks |= {"MASTER_ADDR": address(0), "MASTER_PORT": PORT, "NODE_RANK": rank}
            environment |= {name: str(value) for name, value in ranks.items()}
        inner = ["ip", "netns", "exec", host, *command]
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        children.append(subprocess.Popen(inner, env=environment, stdout=out, stderr=subprocess.DEVNULL, text=True))
    text, found = children[0].stdout.read(), {"CPU seconds": [], "peak MB": []}
    for child in children:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
        found["CPU seconds"].append(round(usage.ru_utime + usage.ru_stime, 1))
        found["peak MB"].append(round(usage.ru_maxrss / 1024))
    found["MB sent"] = [round((sent_bytes(host) - b) / 1e6, 1) for host, b in zip(hosts, before, strict=True)]
    return found, text


def work(data, shard_rows):
    """Solve one ridge regression as one of the hosts; the first one prints what it sent and should have sent."""
    import torch

    import holobind as hb
    from holobind._processes import joined
    from holobind.data.csr import normalise_rows
    from holobind.ridge_knn.ridge import solve_ridge
    from holobind.ridge_knn.row_operator import RowOperator
    from holobind.training import loop

    torch.set_num_threads(1)
    split = hb.data.load(data, texts=False).train
    loop.launch()
    processes, exchanged = joined(), []
    product = RowOperator.normal_product

    def counted(self, P):
        exchanged.append(P.nbytes * (self.processes.size - 1))
        return product(self, P)

    RowOperator.normal_product = counted
    codebook, X = hb.OrbitCodebook(split.Y.shape[1], DIM), normalise_rows(split.X)
    processes.any(False)  # all have arrived
    counter = Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes")
    before = int(counter.read_text())
    solution = solve_ridge(
        X, split.Y, codebook, L2, tolerance=1e-9, max_iterations=ITERATIONS, direct=False, system="primal",
        processes=processes, shard_rows=shard_rows,
    )  # fmt: skip
    sent = int(counter.read_text()) - before
    # Each product sends the block to the others, and the results of the others' blocks back; as many bytes.
    predicted = 2 * sum(exchanged)
    # The right side and, once, the diagonal are exchanged as well, where rows are shared.
    found = {"MB sent": round(sent / 1e6, 1), "MB by the formula": round(predicted / 1e6, 1)}
    found |= {"products": len(exchanged), "iterations": solution.iterations, "seconds": round(solution.seconds, 1)}
    if processes.rank == 0:
        print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="dataset with features")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--gigabits", type=float, default=1.0, help="a second, that a host may send")
    parser.add_argument("--work", choices=("columns", "rows"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.data, options.work == "rows")
        return
    results = {"data": options.data.name, "hosts": options.hosts, "gigabits a second": options.gigabits}
    with network(options.hosts, options.gigabits) as hosts, tempfile.TemporaryDirectory() as folder:
        models = []
        for name, used in (("all hosts", hosts), ("one host", hosts[:1])):
            model = Path(folder) / f"{len(used)}.safetensors"
            command = ["-m", "holobind", "train", str(options.data), "--no-text", "--out", str(model)]
            results[name], _ = run(used, [sys.executable, *command])
            models.append(model)
            print(name, json.dumps(results[name]), flush=True)
        results |= compare(options.data, *models, texts=False)
        for shared in ("columns", "rows"):
            script = [sys.executable, __file__, "--data", str(options.data), "--work", shared]
            found, text = run(hosts, script)
            results[f"ridge regression, {shared} shared"] = json.loads(text.splitlines()[-1]) | {"hosts": found}
            print(shared, json.dumps(results[f"ridge regression, {shared} shared"]), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
