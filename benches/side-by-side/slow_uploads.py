"""Measures the memory of proxies during many slow uploads: cdi-uploadproxy, nginx, and a replica of upstream's proxy.

Clients over TLS send a piece from time to time, like those behind slow links. The memory of the
proxy is measured before they start, while all are sending, and two seconds after the last
response.
"""

import socket
import ssl
import time
from dataclasses import dataclass

from measure import medians, rounds
from options import arguments
from report import print_table
from servers import end, memory_of
from upload_proxy import PROXY_PORT, PVCS, WAYS, Setting, prepared, token

PIECE_BYTES = 16 << 10
PIECES = 20


@dataclass
class Held:
    """MiB."""

    fresh: float
    of_each: float
    left_over: float


def main() -> None:
    more = {"--uploads": {"type": int, "default": 200, "help": "uploads at the same time [200]"}}
    options = arguments(__doc__, "uploadproxy", runs=5, more=more)
    with prepared(options) as setting:
        held = rounds(options.runs, [(way,) for way in WAYS], lambda way: measure(way, setting, options.uploads))
    rows = []
    for (way,), results in held.items():
        fresh, of_each, left_over = medians(results, *Held.__annotations__)
        rows.append([way, f"{fresh:.0f} MiB", f"{of_each:.2f} MiB", f"{left_over:+.0f} MiB"])
    print_table(f"{options.uploads} slow uploads | fresh | of each | left over", rows)


def measure(way: str, setting: Setting, uploads: int) -> Held:
    bearers = [token(setting.proxy, setting.work, pvc) for pvc in PVCS]
    context = ssl.create_default_context(cafile=setting.certs / "ca.crt")
    serving = WAYS[way](setting)
    try:
        time.sleep(0.5)
        fresh = memory_of(serving, "VmRSS") / 2**20
        clients = [connect(context, bearers[number % len(bearers)]) for number in range(uploads)]
        for _ in range(PIECES - 1):
            for client in clients:
                client.sendall(bytes(PIECE_BYTES))
            time.sleep(0.1)
        busy = memory_of(serving, "VmRSS") / 2**20
        for client in clients:
            client.sendall(bytes(PIECE_BYTES))
            answer = client.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{way} answered {answer!r}")
            client.close()
        time.sleep(2)
        after = memory_of(serving, "VmRSS") / 2**20
    finally:
        end(serving)
    return Held(fresh, (busy - fresh) / uploads, after - fresh)


def connect(context: ssl.SSLContext, bearer: str) -> ssl.SSLSocket:
    """A client that has sent the head of its upload."""
    client = context.wrap_socket(socket.create_connection(("127.0.0.1", PROXY_PORT)), server_hostname="localhost")
    head = f"POST /v1beta1/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n"
    client.sendall(f"{head}Content-Length: {PIECE_BYTES * PIECES}\r\n\r\n".encode())
    return client


if __name__ == "__main__":
    main()
