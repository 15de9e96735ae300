"""Measures downloads of a disk from a cluster: `kubectl cdi download`, and a stand-in for `virtctl vmexport download`.

Ours goes through the port-forward of a real API server to cdi-cloner. The stand-in has what makes virtctl slow: a server
that compresses the whole disk, with its zeros, by gzip at the default level in one thread. It has no port-forward and no
TLS, which favours it. Both end when the file is synced, and each file is compared with the disk.
"""

import argparse
import http.server
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from build import ROOT, built
from images import RAW, prepare, sh, warm
from measure import become_subreaper, run

FORMATS = {
    # The file, its options, and how it is compared with the disk.
    "raw": ("copy.raw", "", "cmp {raw} {out}"),
    "raw.zst": ("copy.raw.zst", "", "zstd -dcq {out} | cmp {raw} -"),
    "qcow2": ("copy.qcow2", "", "qemu-img check -q {out} && qemu-img compare -q -f raw -F qcow2 {raw} {out}"),
    "qcow2 zstd": ("copy.qcow2", "--compression zstd", "qemu-img check -q {out} && qemu-img compare -q -f raw -F qcow2 {raw} {out}"),
}

DOWNLOAD = "{program} download pvc/disk {out} --namespace download --kubeconfig {kubeconfig} --image cloner --progress json {options} > {tmp}/events"

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
    options = arguments()
    folder = options.folder.resolve()
    prepare(folder, [])
    programs = options.programs.resolve() if options.programs else built("kubectl-cdi", "cloner")
    become_subreaper()
    raw = folder / RAW
    data = raw.stat().st_blocks * 512
    costs: dict[tuple[str, str], list[Download]] = {}

    def note(mode: str, what: str, cost: Download) -> None:
        costs.setdefault((mode, what), []).append(cost)
        print(f"{mode}, {what}: {cost}, {cost.wire / data:.3f} of the data", flush=True)

    for mode in options.modes:
        with Cluster(programs, raw, mode) as cluster:
            for number in range(options.runs):
                for what in FORMATS:
                    note(mode, what, ours(cluster, programs, what, raw))
                if number < options.stand_ins:
                    note(mode, "stand-in", stand_in(raw))
    base = statistics.median(cost.wall for (_, what), runs in costs.items() for cost in runs if what == "stand-in")
    for (mode, what), runs in costs.items():
        wall, cpu, rss, server_cpu, server_rss, wire = (
            statistics.median(getattr(cost, name) for cost in runs) for name in Download.__dataclass_fields__
        )
        print(
            f"* {mode}, {what}: {wall:.2f}/{cpu:.2f}/{rss / 2**20:.0f}, server {server_cpu:.2f}/{server_rss / 2**20:.0f}, "
            f"{wire / 1e6:.0f} MB, {wire / data:.3f} of the data ({wall / base:.2f}×)"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--programs", type=Path, help="folder of our programs, if they are not to be built")
    parser.add_argument("--modes", nargs="+", default=["Filesystem", "Block"], help="kinds of claims")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    parser.add_argument("--stand-ins", type=int, default=1, help="runs of the stand-in, which take a minute [1]")
    return parser.parse_args()


class Cluster:
    """A cluster with the disk in a claim. For a claim of the mode Block, the disk is a loop device."""

    def __init__(self, programs: Path, raw: Path, mode: str) -> None:
        build = ["cargo", "build", "--release", "--quiet", "--package", "testkit", "--example", "download_cluster"]
        subprocess.run(build, cwd=ROOT, check=True)
        target = subprocess.check_output(["rustc", "--print", "host-tuple"], text=True).strip()
        self.example = ROOT / "target" / target / "release/examples/download_cluster"
        self.cloner, self.raw, self.mode, self.loop = programs / "cdi-cloner", raw, mode, ""

    def __enter__(self) -> "Cluster":
        disk = self.raw
        if self.mode == "Block":
            self.loop = subprocess.check_output(["losetup", "--find", "--show", "--read-only", self.raw], text=True).strip()
            disk = Path(self.loop)
        command = [self.example, self.cloner, disk, self.mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kubeconfig = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], check=True)


class Watch:
    """Watches the CPU time and the memory of the child `name` of a process, until the block ends."""

    def __init__(self, parent: int, name: str) -> None:
        self.parent, self.name = parent, name
        self.cpu, self.rss, self.done = 0.0, 0, threading.Event()

    def __enter__(self) -> "Watch":
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()

    def watch(self) -> None:
        while not self.done.wait(0.02):
            for pid in self.children():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
                if fields["Name"] == self.name and "VmHWM" in fields:
                    self.rss = max(self.rss, int(fields["VmHWM"].split()[0]) << 10)
                    self.cpu = max(self.cpu, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"))

    def children(self) -> list[int]:
        threads = Path(f"/proc/{self.parent}/task").iterdir()
        try:
            return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
        except OSError:
            return []


def ours(cluster: Cluster, programs: Path, what: str, raw: Path) -> Download:
    name, options, compare = FORMATS[what]
    with tempfile.TemporaryDirectory(dir=raw.parent.parent, prefix="cdi-download-") as work:
        tmp, out = Path(work, "tmp"), Path(work, name)
        tmp.mkdir()
        command = DOWNLOAD.format(
            program=programs / "kubectl-cdi", out=out, kubeconfig=cluster.kubeconfig, options=options, tmp=tmp
        )
        warm(raw)
        sh("sync")
        with Watch(cluster.process.pid, "cdi-cloner") as server:
            cost = run(command, tmp)
        done = json.loads((tmp / "events").read_text().splitlines()[-1])
        sh(compare.format(raw=raw, out=out))
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
    with tempfile.TemporaryDirectory(dir=raw.parent.parent, prefix="cdi-download-") as work:
        tmp, out = Path(work, "tmp"), Path(work, "copy.raw")
        tmp.mkdir()
        warm(raw)
        sh("sync")
        before = time.process_time()
        cost = run(STAND_IN.format(port=server.server_port, out=out), tmp)
        server_cpu = time.process_time() - before
        server.shutdown()
        sh(f"cmp {raw} {out}")
        return Download(cost.wall, cost.cpu, cost.rss, server_cpu, 0, sent)


if __name__ == "__main__":
    main()
