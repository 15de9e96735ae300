"""Measures clones from cdi-cloner to cdi-uploadserver, in the encoding of CDI's own programs and in zstd.

A disk of 8 GiB (`--gib`) with the files of the benchmarks' disk is sent over mutual TLS on
loopback, from a device to a file and from a directory to a directory. GNU tar with snappy through
a pipe shows the cost of upstream's first half. Needs root for the loop device.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from build import built
from images import make_disk, sh
from upload import PORT, end, make_certificates, start_ours

SOURCES = ["device", "disk file", "files"]

WAYS = ["snappy", "zstd"]


@dataclass
class Cost:
    """Costs of one clone at both ends, in seconds, MiB, and bytes on the wire per byte of data."""

    wall: float
    cloner_cpu: float
    server_cpu: float
    rss: float


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "disk.raw").exists():
        make_disk(folder / "disk.raw")
    programs = options.programs or built("cloner", "uploadserver")
    cloner, server = programs / "cdi-cloner", programs / "cdi-uploadserver"
    costs: dict[tuple, list[Cost]] = {}
    reads: list[float] = []
    copies: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        work = Path(name)
        certs = work / "certs"
        make_certificates(server, certs, work)
        volume = work / "volume"
        volume.mkdir()
        disk = volume / "disk.img"
        sh(f"cp --sparse=always {folder}/disk.raw {disk} && truncate -s {options.gib}G {disk} && sync {disk}")
        # On a real device zeros must be read. A device over a sparse file would return them from
        # memory: `dd` took 0.8 s instead of 1.9 s.
        sh(f"cp --sparse=never {disk} {work}/device.img && sync {work}/device.img")
        device = attach(work / "device.img")
        try:
            places = {"device": device, "disk file": disk, "files": volume}
            for _ in range(options.runs):
                reads.append(read_directly(device))
                copies.append(copy_directly(device, work / "copy", options.gib))
                print(f"of the device, dd iflag=direct: {reads[-1]:.2f} s, qemu-img to a file: {copies[-1]:.2f} s", flush=True)
                for source in SOURCES:
                    for way in WAYS:
                        cost = clone(cloner, server, certs, places[source], way, disk, folder)
                        costs.setdefault((source, way), []).append(cost)
                        print(f"{source}, {way}: {cost}", flush=True)
            packing(cloner, volume, disk)
        finally:
            sh(f"losetup --detach {device}")
    print_table(costs, options.gib)
    read, copy = statistics.median(reads), statistics.median(copies)
    print(f"\nThe device alone: {read:.1f} s by dd iflag=direct bs=4M, {copy:.1f} s by qemu-img convert to a file, both past the page cache.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    parser.add_argument("--gib", type=int, default=8, help="size of the disk, not less than 4 [8]")
    parser.add_argument("--programs", type=Path, help="folder of our programs, if they are not to be built: those of images/build.sh")
    return parser.parse_args()


def attach(disk: Path) -> Path:
    # Bypasses the page cache, which would contain everything after the first clone.
    command = ["losetup", "--find", "--show", "--read-only", "--direct-io=on", str(disk)]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def read_directly(device: Path) -> float:
    """Returns the seconds for reading the device."""
    begin = time.monotonic()
    sh(f"dd if={device} of=/dev/null iflag=direct bs=4M status=none")
    return time.monotonic() - begin


def copy_directly(device: Path, file: Path, gib: int) -> float:
    """Returns the seconds for qemu-img to copy the device to a file with eight parallel requests: a clone without a network."""
    sh(f"truncate -s {gib}G {file}")
    begin = time.monotonic()
    sh(f"qemu-img convert -n -f raw -O raw -T none -t none -W -m 8 {device} {file} && sync {file}")
    duration = time.monotonic() - begin
    file.unlink()
    return duration


def clone(cloner: Path, server: Path, certs: Path, source: Path, way: str, disk: Path, folder: Path) -> Cost:
    """Makes one run to a fresh target and compares the disk."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        target = Path(name)
        serving = start_ours(server, certs, ["--dir", str(target)])
        begin = time.monotonic()
        usage = send(cloner, certs, source, way)
        wall = time.monotonic() - begin
        server_cpu, server_rss = end(serving)
        sh(f"cmp {disk} {target}/disk.img")
        return Cost(wall, usage.ru_utime + usage.ru_stime, server_cpu, max(usage.ru_maxrss / 1024, server_rss))


def send(cloner: Path, certs: Path, source: Path, way: str):
    """Clones to the listening server. Returns what the cloner used."""
    url = f"https://localhost:{PORT}/v1beta1/upload"
    client = ["--cacert", certs / "ca.crt", "--cert", certs / "client.crt", "--key", certs / "client.key"]
    sending = subprocess.Popen([cloner, "clone", source, url, "--encoding", way, "--quiet", *client])
    _, status, usage = os.wait4(sending.pid, 0)
    sending.returncode = os.waitstatus_to_exitcode(status)
    if sending.returncode != 0:
        raise SystemExit("the clone failed")
    return usage


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
        counted = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command} | wc -c"], check=True, capture_output=True, text=True
        )
        wall = time.monotonic() - begin
        size = int(counted.stdout)
        print(f"{what}: {wall:.1f} s, {size / 1e6:.0f} MB of {data / 1e6:.0f} MB of data", flush=True)


def print_table(costs: dict[tuple, list[Cost]], gib: int) -> None:
    print(f"| clone of {gib} GiB | snappy | zstd | zstd to snappy |\n| --- | --- | --- | --- |")
    for source in SOURCES:
        figures = [
            [
                statistics.median(getattr(cost, what) for cost in costs[source, way])
                for what in ("wall", "cloner_cpu", "server_cpu", "rss")
            ]
            for way in WAYS
        ]
        cells = [f"{wall:.1f} s, {ours:.1f} + {theirs:.1f} CPU s, {rss:.0f} MiB" for wall, ours, theirs, rss in figures]
        snappy, zstd = figures
        cpu = (zstd[1] + zstd[2]) / (snappy[1] + snappy[2])
        print(f"| {source} | {cells[0]} | {cells[1]} | **{zstd[0] / snappy[0]:.2f}×** time, {cpu:.2f}× CPU |")


if __name__ == "__main__":
    main()
