"""Requests a second and latency of `holobind serve` on loopback, at 1, 16 and 64 clients.

python benchmarks/bench_serve.py MODEL [--seconds 10] [--texts FILE]
"""

import argparse
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

CLIENTS = (1, 16, 64)


def load(port, model, texts, n_clients, seconds):
    """Latencies of answers, and the number of each status."""
    latencies, statuses, lock = [], {}, threading.Lock()
    until = time.perf_counter() + seconds

    def client(first):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        own, seen, i = [], {}, first
        while time.perf_counter() < until:
            body = json.dumps({"text": texts[i % len(texts)]})
            began = time.perf_counter()
            connection.request("POST", f"/v1/models/{model}/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            seen[answer.status] = seen.get(answer.status, 0) + 1
            if answer.status == 200:
                own.append(time.perf_counter() - began)
            i += n_clients
        with lock:
            latencies.extend(own)
            for status, count in seen.items():
                statuses[status] = statuses.get(status, 0) + count

    threads = [threading.Thread(target=client, args=(i,)) for i in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(latencies), statuses


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--texts", type=Path, help="a text a line")
    options = parser.parse_args()
    texts = options.texts.read_text().splitlines() if options.texts else ["a history of libraries in the middle ages"]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "holobind", "serve", str(options.model), "--port", str(port)]
    process = subprocess.Popen(command)
    try:
        model = None
        while model is None:
            time.sleep(0.2)
            if process.poll() is not None:
                sys.exit("the server ended")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/v1/models")
                model = json.load(connection.getresponse())["models"][0]
            except OSError:
                continue
        results = {"model": model["id"], "labels": model["labels"], "seconds": options.seconds}
        for n_clients in CLIENTS:
            latencies, statuses = load(port, model["id"], texts, n_clients, options.seconds)
            n = len(latencies)
            results[f"{n_clients} clients"] = {
                "requests a second": round(n / options.seconds, 1),
                "p50 ms": round(1000 * latencies[n // 2], 2) if n else None,
                "p99 ms": round(1000 * latencies[min(n - 1, n * 99 // 100)], 2) if n else None,
                "statuses": statuses,
            }
            print(n_clients, results[f"{n_clients} clients"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
