"""Measures the cost of holes: 10 GiB with 100 MiB of data, as a sparse file, as qcow2, and in a cloned directory.

`qemu-img convert`, which also asks the file system for holes, makes the same disk for comparison.
The results must be equal.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import clone
import upload
from images import sh

DISK_BYTES = 10 << 30
DATA_BYTES = 100 << 20
PIECES = 100
"""Number of areas with data, each of which has a hundredth of it."""


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    walls: dict[tuple, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix="sparse-") as name:
        work = Path(name)
        volume, certs, target = work / "volume", work / "certs", work / "target"
        volume.mkdir()
        raw, qcow2 = volume / "disk.img", work / "disk.qcow2"
        make_disk(raw)
        sh(f"qemu-img convert -O qcow2 {raw} {qcow2}")
        upload.make_certificates(options.programs / "cdi-uploadserver", certs, work)
        out = target / "disk.img"
        for _ in range(options.runs):
            for case, command in {
                ("sparse raw", "ours"): [options.programs / "cdi-importer", "import", raw, out, "--quiet"],
                ("sparse raw", "qemu-img"): ["qemu-img", "convert", "-O", "raw", raw, out],
                ("qcow2", "ours"): [options.programs / "cdi-importer", "import", qcow2, out, "--quiet"],
                ("qcow2", "qemu-img"): ["qemu-img", "convert", "-O", "raw", qcow2, out],
                ("directory, cloned", "ours"): None,
                ("directory, cloned", "qemu-img"): ["qemu-img", "convert", "-O", "raw", raw, out],
            }.items():
                target.mkdir()
                # Earlier writes must be finished, so that this run does not pay for them.
                os.sync()
                wall = timed(command) if command else cloned(options.programs, certs, volume, target)
                # qemu-img compares holes without reading them; cmp would read 20 GiB.
                sh(f"qemu-img compare -q -f raw -F raw {raw} {out} && rm -r {target}")
                walls.setdefault(case, []).append(wall)
                print(f"{', '.join(case)}: {wall:.2f} s", flush=True)
    print("| 10 GiB with 100 MiB of data | ours | qemu-img convert | |\n| --- | --- | --- | --- |")
    for what in dict.fromkeys(what for what, _ in walls):
        ours, theirs = (statistics.median(walls[what, who]) for who in ("ours", "qemu-img"))
        print(f"| {what} | {ours:.2f} s | {theirs:.2f} s | **{ours / theirs:.2f}×** |")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="the disk goes here")
    parser.add_argument("--programs", type=Path, required=True, help="folder of our programs")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median counts [5]")
    return parser.parse_args()


def make_disk(raw: Path) -> None:
    with raw.open("wb") as disk:
        disk.truncate(DISK_BYTES)
        for piece in range(PIECES):
            disk.seek(piece * (DISK_BYTES // PIECES) // 4096 * 4096)
            disk.write(os.urandom(DATA_BYTES // PIECES))


def timed(command: list) -> float:
    begin = time.monotonic()
    subprocess.run(command, check=True)
    subprocess.run(["sync", command[-2] if command[-1] == "--quiet" else command[-1]], check=True)
    return time.monotonic() - begin


def cloned(programs: Path, certs: Path, volume: Path, target: Path) -> float:
    serving = upload.start_ours(programs / "cdi-uploadserver", certs, ["--dir", target])
    begin = time.monotonic()
    clone.send(programs / "cdi-cloner", certs, volume, "zstd")
    wall = time.monotonic() - begin
    upload.end(serving)
    return wall


if __name__ == "__main__":
    main()
