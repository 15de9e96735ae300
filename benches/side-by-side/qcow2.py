"""Measures writing qcow2: `cdi-importer convert` and `qemu-img convert`, from the raw disk and from qcow2.

The other program runs in its fastest mode. Every command ends when the image is synced, and each
image must be clean and equal to the disk.
"""

from itertools import product

from images import RAW, prepare, warm
from measure import Cost, become_subreaper, medians, ratios, rounds, whole
from options import arguments

SOURCES = {RAW: "raw", "disk.qcow2": "qcow2"}
"""The images that are read, and qemu-img's names of their formats."""

COMPRESSIONS = {"none": "", "zlib": "-c", "zstd": "-c -o compression_type=zstd"}
"""Our names of the compressions, and qemu-img's options for them."""


WAYS = {
    "ours": "{us} convert --quiet --compression {compression} {image} {{out}}",
    "qemu-img": "qemu-img convert -f {format} -O qcow2 -W -m 16 {choice} {image} {{out}}; sync {{out}}",
}

CHECK = "stat --format '%s bytes' {out} && qemu-img check -q {out} && qemu-img compare -q -f raw -F qcow2 {raw} {out}"


def main() -> None:
    options = arguments(__doc__, "importer")
    prepare(options.folder, [name for name in SOURCES if name != RAW])
    become_subreaper()

    def measured(source: str, compression: str, way: str) -> Cost:
        image = options.folder / source
        warm(image)
        words = {"compression": compression, "choice": COMPRESSIONS[compression], "format": SOURCES[source]}
        command = WAYS[way].format(us=options.programs / "cdi-importer", image=image, **words)
        return whole(command, options.folder, check=CHECK, name="disk.qcow2")

    costs = rounds(options.runs, product(SOURCES, COMPRESSIONS, WAYS), measured)
    for source, compression in product(SOURCES, COMPRESSIONS):
        pair = [costs[source, compression, way] for way in WAYS]
        figures = [medians(of_way, "wall", "cpu", "rss") for of_way in pair]
        cells = [f"{wall:.2f}/{cpu:.2f}/{rss / 2**20:.0f}" for wall, cpu, rss in figures]
        compared = "/".join(f"{ratio:.2f}×" for ratio in ratios(*pair, "wall", "cpu"))
        print(f"* {SOURCES[source]} to qcow2, {compression}: {'; '.join(cells)} ({compared})")


if __name__ == "__main__":
    main()
