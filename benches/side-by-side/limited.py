"""Measures imports and uploads under CDI's default limit of 750m of a CPU: our programs, and two separate phases.

The web server and the client of an upload are not limited. Needs root for the control group.
"""

import os
import tempfile
from pathlib import Path

import measure
import upload
from images import prepare, warm
from options import arguments
from report import print_walls
from servers import Server
from ways import OVER_HTTP, TWO_PHASES

CPUS = 0.75
"""CDI's default limit for its workers' pods."""

PERIOD_US = 100_000
"""The kernel's period, in which a pod gets its share."""

GZIP_PHASES = "curl -sS -o {tmp}/image {url} && sync {tmp}/image && pigz -dc {tmp}/image | dd of={out} bs=1M iflag=fullblock conv=sparse,fsync status=none"

IMPORTS = {
    ("import of", "disk.zlib.qcow2", "ours"): OVER_HTTP.command,
    ("import of", "disk.zlib.qcow2", "two phases"): TWO_PHASES.command,
    ("import of", "disk.raw.gz", "ours"): OVER_HTTP.command,
    ("import of", "disk.raw.gz", "two phases"): GZIP_PHASES,
}

UPLOADS = [("upload of", "disk.zlib.qcow2", way) for way in upload.WAYS]


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
    options = arguments(__doc__, "importer", "uploadserver")
    folder, server = options.folder, options.programs / "cdi-uploadserver"
    prepare(folder)
    measure.become_subreaper()
    with Limit() as limit, Server(folder) as web, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        certs = upload.make_certificates(server, Path(work))
        upload.CONFINED[:] = ["bash", "-c", f'{limit.join} && exec "$0" "$@"']

        def measured(what: str, image: str, way: str) -> measure.Cost:
            if what == "upload of":
                return upload.measure(upload.WAYS[way], server, certs, folder / image, "file")
            warm(folder / image)
            command = f"{limit.join}; {IMPORTS[what, image, way]}".replace("{url}", f"{web.url}/{image}")
            return measure.whole(command.replace("{us}", str(options.programs / "cdi-importer")), folder)

        costs = measure.rounds(options.runs, [*IMPORTS, *UPLOADS], measured)
    print_walls(f"with {CPUS} of a CPU | ours | two phases | ours to theirs", costs, 1)


if __name__ == "__main__":
    main()
