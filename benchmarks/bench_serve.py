"""Requests a second and latency of `holobind serve` on loopback, beside another server with Annif's routes.

python benchmarks/bench_serve.py MODEL --texts FILE load       1, 16 and 64 clients, one text a request
python benchmarks/bench_serve.py MODEL --texts FILE overload   ten times the capacity: refusals, memory, recovery
python benchmarks/bench_serve.py MODEL --texts FILE soak       half of the capacity for ten minutes: memory
python benchmarks/bench_serve.py MODEL --texts FILE load --rival URL     the same requests to a running Annif

FILE has a text a line. Clients are threads with sockets of their own that send bytes made beforehand, so that they take
little of the time of the server, with which they share the machine. The last line printed is JSON.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

CLIENTS = (1, 16, 64)
K = 10
OVERLOAD_CLIENTS, OVERLOAD_ROWS = 400, 32
OVERLOAD = 14  # times the capacity; about ten are sent, as clients whose requests wait send nothing meanwhile
MAX_TEXTS = 1000


def http_request(path, body, kind, host="127.0.0.1"):
    """The bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def native_requests(model, texts):
    return [
        http_request(f"/v1/models/{model}/predict", json.dumps({"text": text, "k": K}).encode(), "application/json")
        for text in texts
    ]


def annif_requests(project, texts):
    form = "application/x-www-form-urlencoded"
    return [
        http_request(
            f"/v1/projects/{project}/suggest", urllib.parse.urlencode({"text": text, "limit": K}).encode(), form
        )
        for text in texts
    ]


class Client:
    """A connection that is kept."""

    def __init__(self, port):
        self.port, self.socket, self.buffer = port, None, b""

    def ask(self, request):
        """(status, whether Retry-After was sent); 0 if the connection was refused or closed."""
        try:
            if self.socket is None:
                self.socket, self.buffer = socket.create_connection(("127.0.0.1", self.port), 60), b""
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall(request)
            while b"\r\n\r\n" not in self.buffer:
                self._receive()
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            head = head.lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            while len(self.buffer) < length:
                self._receive()
            self.buffer = self.buffer[length:]
            if b"connection: close" in head:
                self.close()
            return int(head[9:12]), b"retry-after:" in head
        except (OSError, ValueError):
            self.close()
            return 0, False

    def _receive(self):
        more = self.socket.recv(1 << 16)
        if not more:
            raise OSError("closed")
        self.buffer += more

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def load(port, requests, n_clients, seconds, rate=None):
    """Send requests from some clients at a time, at most `rate` a second in all; what came back."""
    latencies, statuses, lock, retry = [], {}, threading.Lock(), [0]
    began = time.perf_counter()
    until = began + seconds

    def work(first):
        client, own, seen, retried, i = Client(port), [], {}, 0, first
        due = began + (first / rate if rate else 0)
        while (now := time.perf_counter()) < until:
            if rate and due > now:
                time.sleep(min(due - now, until - now))
                continue
            due += n_clients / rate if rate else 0
            sent = time.perf_counter()
            status, has_retry = client.ask(requests[i % len(requests)])
            seen[status] = seen.get(status, 0) + 1
            retried += has_retry
            if status == 200:
                own.append(time.perf_counter() - sent)
            i += n_clients
        client.close()
        with lock:
            latencies.extend(own)
            retry[0] += retried
            for status, count in seen.items():
                statuses[str(status)] = statuses.get(str(status), 0) + count

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latencies.sort()
    n = len(latencies)
    return {
        "answers a second": round(n / seconds, 1),
        "p50 ms": round(1000 * latencies[n // 2], 2) if n else None,
        "p99 ms": round(1000 * latencies[min(n - 1, n * 99 // 100)], 2) if n else None,
        "statuses": statuses,
        "with Retry-After": retry[0],
    }


@contextmanager
def server(model):
    """A server of a model: its port, the description of the model, and the id of its process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "holobind", "serve", str(model), "--port", str(port), "--quiet"])
    try:
        while True:
            time.sleep(0.2)
            if process.poll() is not None:
                sys.exit("the server ended")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as answer:
                    yield port, json.load(answer)["models"][0], process.pid
                    break
            except OSError:
                continue
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@contextmanager
def running_server(port, pid):
    """A server that was started elsewhere."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as answer:
        yield port, json.load(answer)["models"][0], pid


def resident_mb(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def cpu_seconds(pid):
    """CPU time of a process and of its children that run."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if pid in (int(stat.parent.name), int(fields[1])):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def show(name, result):
    print(f"{name:28}", json.dumps(result), flush=True)
    return result


def measure_load(port, requests, seconds, name, pid):
    load(port, requests, 4, 2.0)  # warm
    results = {}
    for n in CLIENTS:
        before = cpu_seconds(pid)
        result = load(port, requests, n, seconds)
        n_answers = result["statuses"].get("200", 0)
        result["CPU ms an answer"] = round(1000 * (cpu_seconds(pid) - before) / max(n_answers, 1), 2)
        results[f"{n} clients"] = show(f"{name}, {n} clients", result)
    return results


def measure_overload(port, model, texts, pid, seconds):
    """Requests of many rows, ten times as many as are answered, from more clients than requests may run."""
    rows = [texts[i : i + OVERLOAD_ROWS] for i in range(0, len(texts) - OVERLOAD_ROWS, OVERLOAD_ROWS)]
    path = f"/v1/models/{model}/predict"
    many = [http_request(path, json.dumps({"text": each, "k": K}).encode(), "application/json") for each in rows]
    single = native_requests(model, texts)
    before = show("before", load(port, single, 4, seconds / 2))
    capacity = load(port, many, 32, seconds / 2)
    capacity = show("capacity, requests of rows", capacity)["answers a second"]
    memory, done = [resident_mb(pid)], threading.Event()

    def watch():
        while not done.wait(0.1):
            memory.append(resident_mb(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    under = show("overload", load(port, many, OVERLOAD_CLIENTS, seconds, rate=OVERLOAD * capacity))
    done.set()
    watcher.join()
    after = show("afterwards", load(port, single, 4, seconds / 2))
    offered = sum(under["statuses"].values()) / seconds
    return {
        "rows of a request": OVERLOAD_ROWS,
        "capacity, requests a second": capacity,
        "sent a second": round(offered, 1),
        "sent / capacity": round(offered / capacity, 1),
        "under load": under,
        "MB before, at most, afterwards": [round(memory[0]), round(max(memory)), round(resident_mb(pid))],
        "single requests before": before,
        "single requests afterwards": after,
    }


def measure_soak(port, requests, pid, minutes, capacity_seconds):
    """Half of the capacity for some minutes; the memory of the process, every half minute."""
    capacity = load(port, requests, 16, capacity_seconds)["answers a second"]
    memory, result = [round(resident_mb(pid), 1)], None
    statuses = {}
    for i in range(int(2 * minutes)):
        result = load(port, requests, 16, 30.0, rate=capacity / 2)
        for status, count in result["statuses"].items():
            statuses[status] = statuses.get(status, 0) + count
        memory.append(round(resident_mb(pid), 1))
        show(f"{(i + 1) / 2} min", {"MB": memory[-1], **result})
    return {
        "answers a second": round(capacity / 2, 1),
        "minutes": minutes,
        "statuses": statuses,
        "MB every half minute": memory,
        "MB gained after the first minute": round(memory[-1] - memory[2], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("stage", choices=("load", "overload", "soak"))
    parser.add_argument("--texts", type=Path, required=True, help="a text a line")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=10.0, help="of soak")
    parser.add_argument("--running", type=int, nargs=2, metavar=("PORT", "PID"), help="a server that runs already")
    parser.add_argument("--rival", help="address of a project of a running Annif: http://127.0.0.1:5000/v1/projects/ID")
    parser.add_argument("--rival-pid", type=int, default=0, help="its process, whose CPU time is counted")
    options = parser.parse_args()
    sys.setswitchinterval(0.0002)  # clients wait for each other as little as possible
    texts = options.texts.read_text().splitlines()[:MAX_TEXTS]
    results = {"stage": options.stage}
    if options.stage == "load" and options.rival:
        address = urllib.parse.urlsplit(options.rival)
        requests = annif_requests(address.path.rsplit("/", 1)[1], texts)
        results["rival"] = measure_load(address.port, requests, options.seconds, "rival", options.rival_pid)
    else:
        started = running_server(*options.running) if options.running else server(options.model)
        with started as (port, model, pid):
            name = model["id"]
            results |= {"model": name, "labels": model["labels"]}
            requests = native_requests(name, texts)
            if options.stage == "load":
                for route, sent in (("holobind", requests), ("holobind, Annif's routes", annif_requests(name, texts))):
                    results[route] = measure_load(port, sent, options.seconds, route, pid)
            elif options.stage == "overload":
                results |= measure_overload(port, name, texts, pid, options.seconds)
            else:
                results |= measure_soak(port, requests, pid, options.minutes, options.seconds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
