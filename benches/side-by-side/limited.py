"""Measures imports and uploads under CDI's default limit of 750m of a CPU: our programs, and two separate phases.

The web server and the client of an upload are not limited. Needs root for the control group.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import measure
import upload
import whole
from images import prepare, warm
from server import Server
from ways import OVER_HTTP, TWO_PHASES

CPUS = 0.75
"""CDI's default limit for its workers' pods."""

PERIOD_US = 100_000
"""The kernel's period, in which a pod gets its share."""

GZIP_PHASES = "curl -sS -o {tmp}/image {url} && sync {tmp}/image && pigz -dc {tmp}/image | dd of={out} bs=1M iflag=fullblock conv=sparse,fsync status=none"

IMPORTS = {"disk.zlib.qcow2": TWO_PHASES.command, "disk.raw.gz": GZIP_PHASES}

UPLOADS = ["disk.zlib.qcow2"]


class Limit:
    """A control group of version 1 or 2, which exists while the block runs."""

    def __enter__(self) -> "Limit":
        quota = int(CPUS * PERIOD_US)
        old = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        self.group = Path("/sys/fs/cgroup/cpu" if old.exists() else "/sys/fs/cgroup", f"cdi-side-by-side-{os.getpid()}")
        self.group.mkdir()
        if old.exists():
            (self.group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        self.join = f"echo $$ > {self.group}/cgroup.procs"
        return self

    def __exit__(self, *_) -> None:
        self.group.rmdir()


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    prepare(folder)
    importer, server = options.programs / "cdi-importer", options.programs / "cdi-uploadserver"
    measure.become_subreaper()
    walls: dict[tuple, list[float]] = {}

    def note(what: str, way: str, wall: float) -> None:
        walls.setdefault((what, way), []).append(wall)
        print(f"{what}, {way}: {wall:.1f} s", flush=True)

    with Limit() as limit, Server(folder) as web, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        certs = Path(work, "certs")
        upload.make_certificates(server, certs, Path(work))
        upload.CONFINED[:] = ["bash", "-c", f'{limit.join} && exec "$0" "$@"']
        for _ in range(options.runs):
            for image, phases in IMPORTS.items():
                for way, command in ("ours", OVER_HTTP.command), ("two phases", phases):
                    command = f"{limit.join}; {command}".replace("{url}", f"{web.url}/{image}")
                    warm(folder / image)
                    cost = whole.measure(command.replace("{us}", str(importer)), folder)
                    note(f"import of {image}", way, cost.wall)
            for image in UPLOADS:
                for way in upload.ours, upload.two_phases:
                    cost = upload.measure(way, server, certs, folder / image, "file", folder)
                    note(f"upload of {image}", way.__name__.replace("_", " "), cost.wall)
    print_table(walls)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--programs", type=Path, required=True, help="folder of our programs")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    return parser.parse_args()


def print_table(walls: dict[tuple, list[float]]) -> None:
    print(f"| with {CPUS} of a CPU | ours | two phases | ours to theirs |\n| --- | --- | --- | --- |")
    for what in dict.fromkeys(what for what, _ in walls):
        ours, phases = (statistics.median(walls[what, way]) for way in ("ours", "two phases"))
        print(f"| {what} | {ours:.1f} s | {phases:.1f} s | **{ours / phases:.2f}×** |")


if __name__ == "__main__":
    main()
