"""Measures each image format: cdi-importer from a file and from a pipe, and qemu-img from a file.

The images contain the disk of the other benchmarks, written by qemu-img. `qemu-img convert -W -m
16` is its fastest mode; it cannot read a pipe. Every command ends when the data is synced.
"""

from itertools import product
from pathlib import Path

from images import prepare, sh, warm
from measure import Cost, become_subreaper, rounds, whole
from options import arguments
from report import print_pairs

FORMATS = {
    # The image's name, qemu-img's options for making it, and the format for reading it.
    "disk.sparse.vmdk": ("vmdk", "-o subformat=monolithicSparse"),
    "disk.stream.vmdk": ("vmdk", "-o subformat=streamOptimized"),
    "disk.vdi": ("vdi", ""),
    "disk.vhd": ("vpc", "-o force_size=on"),
    "disk.vhdx": ("vhdx", ""),
}


WAYS = {
    "cdi-importer, file": "{us} convert --quiet {image} {{out}}",
    "cdi-importer, pipe": "cat {image} | {us} convert --quiet - {{out}}",
    "qemu-img, file": "qemu-img convert -f {format} -O raw -W -m 16 {image} {{out}}; sync {{out}}",
}


def main() -> None:
    options = arguments(__doc__, "importer")
    folder = options.folder
    prepare(folder, [])
    for name, (format, choice) in FORMATS.items():
        if not Path(folder, name).exists():
            sh(f"qemu-img convert -f raw -O {format} {choice} {folder}/disk.raw {folder}/{name}.part")
            Path(folder, f"{name}.part").rename(Path(folder, name))
    become_subreaper()

    def measured(name: str, way: str) -> Cost:
        warm(folder / name)
        command = WAYS[way].format(us=options.programs / "cdi-importer", image=folder / name, format=FORMATS[name][0])
        return whole(command, folder)

    costs = rounds(options.runs, product(FORMATS, WAYS), measured)
    print_pairs(f"image | {' | '.join(WAYS)} | file to qemu-img", costs, list(WAYS))


if __name__ == "__main__":
    main()
