"""Makes the guest disk in every format and compression in which people distribute disks.

The disk resembles a cloud image: a partition table and an ext4 file system of real files (from
this machine's /usr), two thirds of which are unused. Everything is made once and kept, because
packing takes minutes.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_BYTES = 4 << 30
"""Size of the virtual disk."""

DATA_BYTES = 1350 << 20
"""Size of the files on the disk."""

FILES_FROM = ["/usr", "/opt", "/root/.rustup", "/root/.cargo/registry"]
"""The folders from which files are taken, in this order, until there are enough."""

PARTITION_OFFSET = 1 << 20
"""Offset of the partition: the usual value of partitioning programs."""

RAW = "disk.raw"

PACKED = {
    "disk.qcow2": "qemu-img convert -O qcow2 {raw} {out}",
    "disk.zlib.qcow2": "qemu-img convert -c -O qcow2 {raw} {out}",
    "disk.zstd.qcow2": "qemu-img convert -c -o compression_type=zstd -O qcow2 {raw} {out}",
    "disk.raw.gz": "gzip -6 -c {raw} > {out}",
    "disk.raw.zst": "zstd -q -3 {raw} -o {out}",
    # Blocks of 24 MiB, three times the dictionary, as `xz -6 -T` uses by default.
    "disk.raw.xz": "xz -6 -T2 -c {raw} > {out}",
}
"""Maps each file to the command that makes it from the raw disk."""


def sh(command: str) -> None:
    """Runs a shell command that must succeed."""
    subprocess.run(["bash", "-o", "pipefail", "-ec", command], check=True)


def prepare(folder: Path, names: Iterable[str] = PACKED) -> None:
    """Makes the missing images of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = folder / RAW
    if not raw.exists():
        make_disk(raw)
    for name in names:
        out = folder / name
        if not out.exists():
            print(f"packing {name}", flush=True)
            partial = folder / f"{name}.partial"
            partial.unlink(missing_ok=True)
            sh(PACKED[name].format(raw=raw, out=partial))
            partial.rename(out)


def warm(image: Path) -> None:
    """Reads an image into the page cache, so that no measurement waits for its disk.

    Some machines take memory back from the page cache while most of it is free: with 15 of 24 GiB free, an import of the
    raw disk, 4 GiB, took 6.7 s in one round and 2.2 in the next.
    """
    with open(image, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


@contextmanager
def attached(disk: Path, *options: str) -> Iterator[Path]:
    """Yields a loop device over a file."""
    device = subprocess.check_output(["losetup", "--find", "--show", *options, disk], text=True).strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def make_disk(raw: Path) -> None:
    """Makes a partition with an ext4 file system of real files."""
    print(f"making {raw.name}", flush=True)
    tree = raw.parent / "tree"
    partial = raw.with_suffix(".partial")
    shutil.rmtree(tree, ignore_errors=True)
    partial.unlink(missing_ok=True)
    collect(tree)
    with open(partial, "xb") as disk:
        disk.truncate(DISK_BYTES)
    sh(f"echo 'start={PARTITION_OFFSET // 512}, type=83' | sfdisk --quiet {partial}")
    kib = (DISK_BYTES - PARTITION_OFFSET) // 1024
    sh(f"mke2fs -q -t ext4 -d {tree} -E offset={PARTITION_OFFSET} {partial} {kib}k")
    # Turns blocks of zeros into holes, as in images of distributions.
    sh(f"fallocate --dig-holes {partial}")
    shutil.rmtree(tree)
    partial.rename(raw)


def collect(tree: Path) -> None:
    """Links (or copies) files into `tree`, in the order of their names, until there are enough bytes."""
    total = 0
    for top in FILES_FROM:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                file = Path(folder, name)
                if file.is_symlink() or not file.is_file():
                    continue
                place = tree / file.relative_to("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(file, place)
                except OSError:
                    shutil.copy2(file, place)
                total += file.stat().st_size
                if total >= DATA_BYTES:
                    return
    raise SystemExit(f"only {total} bytes of files on this machine, {DATA_BYTES} are needed")
