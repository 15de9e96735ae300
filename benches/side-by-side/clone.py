"""Measures clones from cdi-cloner to cdi-uploadserver, in the encoding of CDI's own programs and in zstd.

A disk of 8 GiB (`--gib`) with the files of the benchmarks' disk is sent over mutual TLS on
loopback, from a device to a file and from a directory to a directory. Needs root for the loop device.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from images import RAW, attached, prepare, sh
from measure import medians, rounds
from options import arguments
from report import print_table
from servers import end, wait
from upload import PORT, make_certificates, start_ours

URL = f"https://localhost:{PORT}/v1beta1/upload"

SOURCES = ["device", "disk file", "files"]

WAYS = ["snappy", "zstd"]


@dataclass
class Cost:
    """Costs of one clone at both ends, in seconds, and the larger of their peaks of memory."""

    wall: float
    cloner_cpu: float
    server_cpu: float
    rss: float


def main() -> None:
    more = {"--gib": {"type": int, "default": 8, "help": "size of the disk, not less than 4 [8]"}}
    options = arguments(__doc__, "cloner", "uploadserver", more=more)
    folder, cloner, server = options.folder, options.programs / "cdi-cloner", options.programs / "cdi-uploadserver"
    prepare(folder, [])
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        certs = make_certificates(server, Path(name))
        with places(Path(name), folder / RAW, f"{options.gib}G") as sources:
            measured = lambda source, way: clone(cloner, server, certs, sources[source], way, sources["disk file"], folder)
            costs = rounds(options.runs, product(SOURCES, WAYS), measured)
    print_rows(costs, options.gib)


@contextmanager
def places(work: Path, raw: Path, size: str) -> Iterator[dict[str, Path]]:
    """Yields the disk as each of SOURCES."""
    volume, backing = work / "volume", work / "device.img"
    disk = volume / "disk.img"
    volume.mkdir()
    sh(f"cp --sparse=always {raw} {disk} && truncate -s {size} {disk}")
    # On a real device zeros must be read. A device over a sparse file would return them from
    # memory: `dd` took 0.8 s instead of 1.9 s.
    sh(f"cp --sparse=never {disk} {backing} && sync {disk} {backing}")
    # --direct-io bypasses the page cache, which would contain everything after the first clone.
    with attached(backing, "--read-only", "--direct-io=on") as device:
        yield {"device": device, "disk file": disk, "files": volume}


def clone(cloner: Path, server: Path, certs: Path, source: Path, way: str, disk: Path, folder: Path) -> Cost:
    """Makes one run to a fresh target and compares the disk."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        target = Path(name)
        serving = start_ours(server, certs, ["--dir", target])
        begin = time.monotonic()
        cpu, rss = send(cloner, certs, source, way)
        wall = time.monotonic() - begin
        server_cpu, server_rss = end(serving)
        sh(f"cmp {disk} {target}/disk.img")
        return Cost(wall, cpu, server_cpu, max(rss, server_rss))


def send(cloner: Path, certs: Path, source: Path, way: str) -> tuple[float, int]:
    """Clones to the listening server. Returns the CPU seconds and the memory of the cloner."""
    client = ["--cacert", certs / "ca.crt", "--cert", certs / "client.crt", "--key", certs / "client.key"]
    return succeed(subprocess.Popen([cloner, "clone", source, URL, "--encoding", way, "--quiet", *client]))


def succeed(sending: subprocess.Popen) -> tuple[float, int]:
    used = wait(sending)
    if sending.returncode != 0:
        raise SystemExit("the clone failed")
    return used


def print_rows(costs: dict[tuple, list[Cost]], gib: int) -> None:
    rows = []
    for source in SOURCES:
        figures = [medians(costs[source, way], "wall", "cloner_cpu", "server_cpu", "rss") for way in WAYS]
        cells = [f"{wall:.1f} s, {ours:.1f} + {theirs:.1f} CPU s, {rss / 2**20:.0f} MiB" for wall, ours, theirs, rss in figures]
        snappy, zstd = figures
        cpu = (zstd[1] + zstd[2]) / (snappy[1] + snappy[2])
        rows.append([source, *cells, f"**{zstd[0] / snappy[0]:.2f}×** time, {cpu:.2f}× CPU"])
    print_table(f"clone of {gib} GiB | snappy | zstd | zstd to snappy", rows)


if __name__ == "__main__":
    main()
