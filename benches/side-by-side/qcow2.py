"""Measures writing qcow2: `cdi-importer convert` and `qemu-img convert`, from the raw disk and from qcow2.

The other program runs in its fastest mode. Every command ends when the image is synced, and each
image must be clean and equal to the disk.
"""

import statistics
import tempfile
from pathlib import Path

from images import RAW, prepare, sh, warm
from measure import Cost, become_subreaper, run
from whole import arguments, importer

SOURCES = {RAW: "raw", "disk.qcow2": "qcow2"}
"""The images that are read, and qemu-img's names of their formats."""

COMPRESSIONS = {"none": "", "zlib": "-c", "zstd": "-c -o compression_type=zstd"}
"""Our names of the compressions, and qemu-img's options for them."""


def main() -> None:
    options = arguments(__doc__)
    folder = options.folder.resolve()
    prepare(folder, [name for name in SOURCES if name != RAW])
    binary = importer(options)
    become_subreaper()
    rounds: dict[tuple[str, str], list[tuple[Cost, Cost]]] = {}
    for number in range(options.runs):
        for source, format in SOURCES.items():
            for compression, choice in COMPRESSIONS.items():
                image = folder / source
                commands = [
                    f"{binary} convert --quiet --compression {compression} {image} {{out}}",
                    f"qemu-img convert -f {format} -O qcow2 -W -m 16 {choice} {image} {{out}}; sync {{out}}",
                ]
                # Every other round in reverse order.
                order = [1, 0] if number % 2 else [0, 1]
                costs = {way: measure(commands[way], image, folder) for way in order}
                rounds.setdefault((source, compression), []).append((costs[0], costs[1]))
    for (source, compression), pairs in rounds.items():
        figures = [figures_of([pair[way] for pair in pairs]) for way in (0, 1)]
        ratios = [ratio(pairs, what) for what in ("wall", "cpu")]
        print(f"* {SOURCES[source]} to qcow2, {compression}: {figures[0]}; {figures[1]} ({'/'.join(ratios)})")


def measure(command: str, image: Path, folder: Path) -> Cost:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-qcow2-") as name:
        tmp, out = Path(name, "tmp"), Path(name, "disk.qcow2")
        tmp.mkdir()
        warm(image)
        sh("sync")
        cost = run(command.format(out=out), tmp)
        print(f"{cost.wall:.2f} s, {cost.cpu:.2f} CPU s, {out.stat().st_size / 1e6:.0f} MB: {command}", flush=True)
        sh(f"qemu-img check -q {out} && qemu-img compare -q -f raw -F qcow2 {folder / RAW} {out}")
        return cost


def figures_of(costs: list[Cost]) -> str:
    wall, cpu, rss = (statistics.median(getattr(cost, what) for cost in costs) for what in ("wall", "cpu", "rss"))
    return f"{wall:.2f}/{cpu:.2f}/{rss / 2**20:.0f}"


def ratio(pairs: list[tuple[Cost, Cost]], what: str) -> str:
    """Returns ours to theirs, as the median of the ratios within rounds."""
    return f"{statistics.median(getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs):.2f}×"


if __name__ == "__main__":
    main()
