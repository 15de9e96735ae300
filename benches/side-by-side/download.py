"""Measures downloads of a disk from a cluster: `kubectl cdi download`, and a stand-in for `virtctl vmexport download`.

Ours goes through the port-forward of a real API server to cdi-cloner. The stand-in has what makes virtctl slow: a server
that compresses the whole disk, with its zeros, by gzip at the default level in one thread. It has no port-forward and no
TLS, which favours it. Both end when the file is synced, and each file is compared with the disk.
"""

import http.server
import json
import subprocess
import threading
import time
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from images import RAW, attached, prepare, warm
from measure import Watch, become_subreaper, medians, rounds, whole
from options import ROOT, arguments, machine

EQUAL_QCOW2 = "qemu-img check -q {out} && qemu-img compare -q -f raw -F qcow2 {raw} {out}"

FORMATS = {
    # The file, its options, and how it is compared with the disk.
    "raw": ("copy.raw", "", "cmp {raw} {out}"),
    "raw.zst": ("copy.raw.zst", "", "zstd -dcq {out} | cmp {raw} -"),
    "qcow2": ("copy.qcow2", "", EQUAL_QCOW2),
    "qcow2 zstd": ("copy.qcow2", "--compression zstd", EQUAL_QCOW2),
}

DOWNLOAD = "{program} download pvc/disk {out} --namespace download --kubeconfig {kubeconfig} --image cloner --progress json {options} > {events}"

STAND_IN = "curl -sS http://127.0.0.1:{port}/ | gzip -dc > {out}; sync {out}"


@dataclass
class Download:
    """Costs of one download: seconds, and bytes."""

    wall: float
    cpu: float
    rss: int
    server_cpu: float
    server_rss: int
    wire: int


def main() -> None:
    more = {
        "--modes": {"nargs": "+", "default": ["Filesystem", "Block"], "help": "kinds of claims"},
        "--stand-ins": {"type": int, "default": 1, "help": "runs of the stand-in, which take a minute [1]"},
    }
    options = arguments(__doc__, "kubectl-cdi", "cloner", more=more)
    prepare(options.folder, [])
    become_subreaper()
    raw = options.folder / RAW
    data = raw.stat().st_blocks * 512
    costs = {}
    for mode in options.modes:
        disk = attached(raw, "--read-only") if mode == "Block" else nullcontext(raw)
        with disk as device, Cluster(options.programs / "cdi-cloner", device, mode) as cluster:
            measured = lambda _, what: ours(cluster, options.programs / "kubectl-cdi", what, raw)
            costs |= rounds(options.runs, [(mode, what) for what in FORMATS], measured)
        costs |= rounds(options.stand_ins, [(mode, "stand-in")], lambda *_: stand_in(raw))
    (base,) = medians([cost for (_, what), runs in costs.items() for cost in runs if what == "stand-in"], "wall")
    for (mode, what), runs in costs.items():
        wall, cpu, rss, server_cpu, server_rss, wire = medians(runs, *Download.__dataclass_fields__)
        print(
            f"* {mode}, {what}: {wall:.2f}/{cpu:.2f}/{rss / 2**20:.0f}, server {server_cpu:.2f}/{server_rss / 2**20:.0f}, "
            f"{wire / 1e6:.0f} MB, {wire / data:.3f} of the data ({wall / base:.2f}×)"
        )


class Cluster:
    """A cluster with the disk in a claim."""

    def __init__(self, cloner: Path, disk: Path, mode: str) -> None:
        build = ["cargo", "build", "--release", "--quiet", "--package", "testkit", "--example", "download_cluster"]
        subprocess.run(build, cwd=ROOT, check=True)
        self.command = [ROOT / "target" / machine() / "release/examples/download_cluster", cloner, disk, mode]

    def __enter__(self) -> "Cluster":
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kubeconfig = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()


def ours(cluster: Cluster, program: Path, what: str, raw: Path) -> Download:
    name, options, compare = FORMATS[what]
    warm(raw)
    events = raw.with_name("events")
    command = DOWNLOAD.format(program=program, kubeconfig=cluster.kubeconfig, options=options, events=events, out="{out}")
    with Watch(cluster.process.pid, "cdi-cloner", 0.02) as server:
        cost = whole(command, raw.parent, check=compare, name=name)
    done = json.loads(events.read_text().splitlines()[-1])
    return Download(cost.wall, cost.cpu, cost.rss, server.cpu, server.rss, done["received_bytes"])


def stand_in(raw: Path) -> Download:
    """Downloads the disk as virtctl does."""
    sent = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            # 31 selects the gzip format.
            gzip = zlib.compressobj(6, zlib.DEFLATED, 31)
            with open(raw, "rb", buffering=0) as disk:
                while block := disk.read(1 << 20):
                    sent += self.wfile.write(gzip.compress(block))
            sent += self.wfile.write(gzip.flush())

        def log_message(self, *_) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    warm(raw)
    before = time.process_time()
    cost = whole(STAND_IN.replace("{port}", str(server.server_port)), raw.parent, check="cmp {raw} {out}", name="copy.raw")
    server_cpu = time.process_time() - before
    server.shutdown()
    return Download(cost.wall, cost.cpu, cost.rss, server_cpu, 0, sent)


if __name__ == "__main__":
    main()
