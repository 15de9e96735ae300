"""Measures clones from cdi-cloner to cdi-uploadserver, in the encoding of CDI's own programs and in zstd.

A disk of 8 GiB (`--gib`) with the files of the benchmarks' disk is sent over mutual TLS on
loopback, from a device to a file and from a directory to a directory. GNU tar with snappy through
a pipe shows the cost of upstream's first half. Needs root for the loop device.
"""

import subprocess
import tempfile
import time
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

ALONE = {
    "dd iflag=direct bs=4M": "dd if={device} of=/dev/null iflag=direct bs=4M status=none",
    # Eight parallel requests: a clone without a network.
    "qemu-img to a file": "qemu-img convert -n -f raw -O raw -T none -t none -W -m 8 {device} {file} && sync {file}",
}
"""Commands that read the device past the page cache."""


@dataclass
class Cost:
    """Costs of one clone at both ends, in seconds, and the larger of their peaks of memory."""

    wall: float
    cloner_cpu: float = 0
    server_cpu: float = 0
    rss: float = 0


def main() -> None:
    more = {"--gib": {"type": int, "default": 8, "help": "size of the disk, not less than 4 [8]"}}
    options = arguments(__doc__, "cloner", "uploadserver", more=more)
    folder, cloner, server = options.folder, options.programs / "cdi-cloner", options.programs / "cdi-uploadserver"
    prepare(folder, [])
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        work = Path(name)
        certs, volume = make_certificates(server, work), work / "volume"
        volume.mkdir()
        disk, copy = volume / "disk.img", work / "copy"
        sh(f"cp --sparse=always {folder}/{RAW} {disk} && truncate -s {options.gib}G {disk} && sync {disk}")
        # On a real device zeros must be read. A device over a sparse file would return them from
        # memory: `dd` took 0.8 s instead of 1.9 s.
        sh(f"cp --sparse=never {disk} {work}/device.img && sync {work}/device.img")
        # --direct-io bypasses the page cache, which would contain everything after the first clone.
        with attached(work / "device.img", "--read-only", "--direct-io=on") as device:
            places = {"device": device, "disk file": disk, "files": volume}

            def measured(source: str, way: str) -> Cost:
                if way not in ALONE:
                    return clone(cloner, server, certs, places[source], way, disk, folder)
                sh(f"truncate -s {options.gib}G {copy}")
                begin = time.monotonic()
                sh(ALONE[way].format(device=device, file=copy))
                wall = time.monotonic() - begin
                copy.unlink()
                return Cost(wall)

            alone = [("device", way) for way in ALONE]
            costs = rounds(options.runs, [*alone, *product(SOURCES, WAYS)], measured)
            packing(cloner, volume, disk)
    print_rows(costs, options.gib)
    read, copied = (medians(costs[trial], "wall")[0] for trial in alone)
    print(f"\nThe device alone, past the page cache: {read:.1f} s by dd iflag=direct bs=4M, {copied:.1f} s by qemu-img convert to a file.")


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


def packing(cloner: Path, volume: Path, disk: Path) -> None:
    """Returns the sizes of the streams, and the time of GNU tar for the bytes that we wrap."""
    data = disk.stat().st_blocks * 512
    for what, command in [
        ("cdi-cloner pack, snappy", f"{cloner} pack {volume}"),
        ("cdi-cloner pack, zstd", f"{cloner} pack {volume} --encoding zstd"),
        ("cdi-cloner pack, the tar alone", f"{cloner} pack {volume} --encoding plain"),
        ("GNU tar -S", f"tar -c -S -C {volume} disk.img"),
    ]:
        begin = time.monotonic()
        size = int(subprocess.check_output(["bash", "-o", "pipefail", "-c", f"{command} | wc -c"]))
        wall = time.monotonic() - begin
        print(f"{what}: {wall:.1f} s, {size / 1e6:.0f} MB of {data / 1e6:.0f} MB of data", flush=True)


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
