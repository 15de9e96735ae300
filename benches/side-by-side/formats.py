"""Measures each image format: cdi-importer from a file and from a pipe, and qemu-img from a file.

The images contain the disk of the other benchmarks, written by qemu-img. `qemu-img convert -W -m
16` is its fastest mode; it cannot read a pipe. Every command ends when the data is synced.
"""

import statistics
from pathlib import Path

from images import prepare, sh, warm
from measure import Cost, become_subreaper
from whole import arguments, importer, measure

FORMATS = {
    # The image's name, qemu-img's options for making it, and the format for reading it.
    "disk.sparse.vmdk": ("vmdk", "-o subformat=monolithicSparse"),
    "disk.stream.vmdk": ("vmdk", "-o subformat=streamOptimized"),
    "disk.vdi": ("vdi", ""),
    "disk.vhd": ("vpc", "-o force_size=on"),
    "disk.vhdx": ("vhdx", ""),
}


def from_file(binary: Path, image: Path, _format: str) -> str:
    return f"{binary} convert --quiet {image} {{out}}"


def from_pipe(binary: Path, image: Path, _format: str) -> str:
    return f"cat {image} | {binary} convert --quiet - {{out}}"


def qemu_img(_binary: Path, image: Path, format: str) -> str:
    return f"qemu-img convert -f {format} -O raw -W -m 16 {image} {{out}}; sync {{out}}"


WAYS = [from_file, from_pipe, qemu_img]


def main() -> None:
    options = arguments(__doc__)
    folder = options.folder.resolve()
    prepare(folder)
    for name, (format, choice) in FORMATS.items():
        if not Path(folder, name).exists():
            sh(f"qemu-img convert -f raw -O {format} {choice} {folder}/disk.raw {folder}/{name}.part")
            Path(folder, f"{name}.part").rename(Path(folder, name))
    binary = importer(options)
    become_subreaper()
    costs: dict[tuple, list[Cost]] = {}
    for _ in range(options.runs):
        for name, (format, _) in FORMATS.items():
            for way in WAYS:
                warm(Path(folder, name))
                cost = measure(way(binary, Path(folder, name), format), folder)
                costs.setdefault((name, way.__name__), []).append(cost)
                print(f"{name}, {way.__name__}: {cost}", flush=True)
    print_table(costs)


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    print("| image | cdi-importer, file | cdi-importer, pipe | qemu-img, file | file to qemu-img |\n" + "| --- " * 5 + "|")
    for name in FORMATS:
        figures = [
            [
                statistics.median(getattr(cost, what) for cost in costs[(name, way.__name__)])
                for what in ("wall", "cpu", "rss")
            ]
            for way in WAYS
        ]
        cells = [f"{wall:.1f} s, {cpu:.1f} CPU s, {rss / 2**20:.0f} MiB" for wall, cpu, rss in figures]
        us, them = figures[0], figures[2]
        ratio = f"**{us[0] / them[0]:.2f}×** time, {us[1] / them[1]:.2f}× CPU"
        print(f"| {name} | {' | '.join(cells)} | {ratio} |")


if __name__ == "__main__":
    main()
