"""Measures the cost of holes: 10 GiB with 100 MiB of data, as a sparse file, as qcow2, and in a cloned directory.

`qemu-img convert`, which also asks the file system for holes, makes the same disk for comparison.
The results must be equal.
"""

import os
import tempfile
import time
from pathlib import Path

import clone
import upload
from images import sh
from measure import Cost, become_subreaper, rounds, run
from options import arguments
from report import print_walls
from servers import end

DISK_BYTES = 10 << 30
DATA_BYTES = 100 << 20
PIECES = 100
"""Number of areas with data, each of which has a hundredth of it."""


COMMANDS = {
    ("sparse raw", "ours"): "{us} import {raw} {out} --quiet",
    ("sparse raw", "qemu-img"): "qemu-img convert -O raw {raw} {out}",
    ("qcow2", "ours"): "{us} import {qcow2} {out} --quiet",
    ("qcow2", "qemu-img"): "qemu-img convert -O raw {qcow2} {out}",
    ("directory, cloned", "ours"): "",
    ("directory, cloned", "qemu-img"): "qemu-img convert -O raw {raw} {out}",
}


def main() -> None:
    options = arguments(__doc__, "importer", "uploadserver", "cloner", runs=5)
    become_subreaper()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="sparse-") as name:
        work = Path(name)
        volume, target, qcow2 = work / "volume", work / "target", work / "disk.qcow2"
        volume.mkdir()
        (work / "tmp").mkdir()
        raw, out = volume / "disk.img", target / "disk.img"
        make_disk(raw)
        sh(f"qemu-img convert -O qcow2 {raw} {qcow2}")
        certs = upload.make_certificates(options.programs / "cdi-uploadserver", work)

        def measured(what: str, who: str) -> Cost:
            target.mkdir()
            # Earlier writes must be finished, so that this run does not pay for them.
            os.sync()
            command = COMMANDS[what, who].format(us=options.programs / "cdi-importer", raw=raw, qcow2=qcow2, out=out)
            cost = run(f"{command} && sync {out}", work / "tmp") if command else cloned(options.programs, certs, volume, target)
            # qemu-img compares holes without reading them; cmp would read 20 GiB.
            sh(f"qemu-img compare -q -f raw -F raw {raw} {out} && rm -r {target}")
            return cost

        costs = rounds(options.runs, COMMANDS, measured)
    print_walls("10 GiB with 100 MiB of data | ours | qemu-img convert | ours to theirs", costs, 2)


def make_disk(raw: Path) -> None:
    with raw.open("wb") as disk:
        disk.truncate(DISK_BYTES)
        for piece in range(PIECES):
            disk.seek(piece * (DISK_BYTES // PIECES) // 4096 * 4096)
            disk.write(os.urandom(DATA_BYTES // PIECES))


def cloned(programs: Path, certs: Path, volume: Path, target: Path) -> Cost:
    serving = upload.start_ours(programs / "cdi-uploadserver", certs, ["--dir", target])
    begin = time.monotonic()
    clone.send(programs / "cdi-cloner", certs, volume, "zstd")
    wall = time.monotonic() - begin
    end(serving)
    return Cost(wall)


if __name__ == "__main__":
    main()
