"""Measures the memory of proxies during many slow uploads: cdi-uploadproxy, nginx, and a replica of upstream's proxy.

Clients over TLS send a piece from time to time, like those behind slow links. The memory of the
proxy is measured before they start, while all are sending, and two seconds after the last
response.
"""

import argparse
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from upload_proxy import PROXY_PORT, PVCS, SINK_PORT, Setting, build_go, built_proxy, end, make_keys, nginx, ours, stand_in, start, token

PIECE_BYTES = 16 << 10
PIECES = 20


@dataclass
class Held:
    """MiB."""

    fresh: float
    of_each: float
    left_over: float


def main() -> None:
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    proxy = options.proxy.resolve() if options.proxy else built_proxy()
    go = build_go(options.folder)
    held: dict[str, list[Held]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="proxy-") as name:
        work = Path(name)
        setting = Setting(proxy, go, work, work / "certs", work / "file")
        make_keys(setting)
        sink = start([go, "sink", setting.certs, f"127.0.0.1:{SINK_PORT}"], SINK_PORT)
        try:
            for _ in range(options.runs):
                for way in ours, nginx, stand_in:
                    result = measure(way, setting, options.uploads)
                    held.setdefault(way.__name__, []).append(result)
                    print(f"{way.__name__}: {result}", flush=True)
        finally:
            end(sink)
    print_table(held, options.uploads)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="Go is kept here")
    parser.add_argument("--proxy", type=Path, help="uploadproxy-dev, if it is not to be built")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median counts [5]")
    parser.add_argument("--uploads", type=int, default=200, help="uploads at the same time [200]")
    return parser.parse_args()


def measure(way, setting: Setting, uploads: int) -> Held:
    bearers = [token(setting, pvc) for pvc in PVCS]
    context = ssl.create_default_context(cafile=setting.certs / "ca.crt")
    serving = way(setting)
    try:
        time.sleep(0.5)
        fresh = resident_mib(serving)
        clients = [connect(context, bearers[number % len(bearers)]) for number in range(uploads)]
        for _ in range(PIECES - 1):
            for client in clients:
                client.sendall(bytes(PIECE_BYTES))
            time.sleep(0.1)
        busy = resident_mib(serving)
        for client in clients:
            client.sendall(bytes(PIECE_BYTES))
            answer = client.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{way.__name__} answered {answer!r}")
            client.close()
        time.sleep(2)
        after = resident_mib(serving)
    finally:
        end(serving)
    return Held(fresh, (busy - fresh) / uploads, after - fresh)


def connect(context: ssl.SSLContext, bearer: str) -> ssl.SSLSocket:
    """A client that has sent the head of its upload."""
    client = context.wrap_socket(socket.create_connection(("127.0.0.1", PROXY_PORT)), server_hostname="localhost")
    head = f"POST /v1beta1/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n"
    client.sendall(f"{head}Content-Length: {PIECE_BYTES * PIECES}\r\n\r\n".encode())
    return client


def resident_mib(serving: subprocess.Popen) -> float:
    """Returns the memory of a server with its workers."""
    children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
    files = [Path(f"/proc/{process}/status").read_text() for process in [str(serving.pid), *children]]
    lines = [line for file in files for line in file.splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) for line in lines) / 1024


def print_table(held: dict[str, list[Held]], uploads: int) -> None:
    print(f"| {uploads} slow uploads | fresh | of each | left over |\n| --- | --- | --- | --- |")
    for way, results in held.items():
        fresh, of_each, left_over = (
            statistics.median(getattr(result, what) for result in results) for what in Held.__annotations__
        )
        print(f"| {way} | {fresh:.0f} MiB | {of_each:.2f} MiB | {left_over:+.0f} MiB |")


if __name__ == "__main__":
    main()
