"""Measures how an import scales with threads, and with the size of sparse disks.

The images are qcow2 with zlib. They contain the data of the guest disk, spread evenly over disks
of several sizes.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from images import RAW, prepare, sh
from measure import become_subreaper, medians, rounds, whole
from options import arguments
from report import print_table

GIB = 1 << 30

BLOCK_BYTES = 1 << 20
"""Size of the blocks in which the data is spread."""

THREADS = [1, 2, 4]
"""Numbers of threads tried on one of the disks. The others are imported with the second number."""


@dataclass(frozen=True)
class Image:
    """A sparse disk; sizes in bytes."""

    virtual: int
    data: int

    @property
    def name(self) -> str:
        return f"scaling-{self.virtual // GIB}.qcow2"

    def __str__(self) -> str:
        return f"{self.virtual // GIB} GiB, {self.data / GIB:g} GiB of data"


IMAGES = [
    Image(1 * GIB, GIB // 4),
    Image(4 * GIB, 1 * GIB),
    Image(16 * GIB, 4 * GIB),
    Image(1024 * GIB, 1 * GIB),
]

CASES = [(IMAGES[1], threads) for threads in THREADS] + [(image, THREADS[1]) for image in IMAGES if image != IMAGES[1]]


def main() -> None:
    options = arguments(__doc__, "importer")
    folder = options.folder
    prepare(folder, [])
    for image in IMAGES:
        if not (folder / image.name).exists():
            print(f"packing {image.name}", flush=True)
            pack(image, folder / RAW, folder / image.name)
    become_subreaper()
    command = f"{options.programs}/cdi-importer import -q --threads {{}} {folder}/{{}} {{{{out}}}}"
    costs = rounds(options.runs, CASES, lambda image, threads: whole(command.format(threads, image.name), folder, folder, "true"))
    rows = []
    for (image, threads), runs in costs.items():
        wall, cpu = medians(runs, "wall", "cpu")
        rss = max(cost.rss for cost in runs) / 2**20
        cells = [f"{wall:.2f} s", f"{cpu:.2f} s", f"{rss:.0f} MiB", f"{wall / (image.data / GIB):.2f} s"]
        rows.append([str(image), str(threads), *cells])
    print_table("disk | threads | wall | CPU | peak RSS | wall for a GiB of data", rows)


def pack(image: Image, guest: Path, out: Path) -> None:
    """Spreads the guest's data over the image, repeating it if there is not enough."""
    count = image.data // BLOCK_BYTES
    stride = image.virtual // count
    partial = out.with_suffix(".partial")
    with tempfile.NamedTemporaryFile(dir=out.parent) as raw:
        raw.truncate(image.virtual)
        offsets = cycle(data_blocks(guest))
        with open(guest, "rb") as source:
            for index, offset in enumerate(islice(offsets, count)):
                os.pwrite(raw.fileno(), os.pread(source.fileno(), BLOCK_BYTES, offset), index * stride)
        sh(f"qemu-img convert -c -W -m 16 -t unsafe -f raw -O qcow2 {raw.name} {partial}")
    partial.rename(out)


def data_blocks(path: Path) -> Iterator[int]:
    """Yields the offsets of the file's blocks that are not holes."""
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        at = 0
        while at < end:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            yield from range(start, at - BLOCK_BYTES + 1, BLOCK_BYTES)


if __name__ == "__main__":
    main()
