"""Measures disks in OCI artifacts: `import` and `pack` beside zstd, and `restore` beside qemu-img.

The artifact holds the disk of the other benchmarks as KubeVirt exports it: one bare zstd layer. The
backups are a full one of 10 GiB and ten incremental ones, as KubeVirt's push mode leaves them.
Every command ends when the data is synced. Every result is compared.
"""

import shutil
import subprocess
from pathlib import Path

from images import prepare, sh, warm
from layouts import Layout
from measure import Cost, become_subreaper, medians, ratios, rounds, whole
from options import arguments

BACKUPS = 10
BACKUP_BYTES = 10 << 30
PIECES = 1600
PIECE_BYTES = 64 << 10
"""Each incremental backup has this many scattered pieces of this size, 100 MiB: QEMU marks changes in units of 64 KiB."""

IMPORT = {
    "cdi-importer import": "{us} import --quiet oci:{folder}/artifact {out}",
    "zstd -dc, dd": "zstd -dc {folder}/disk.raw.zst | dd of={out} bs=1M iflag=fullblock conv=sparse,fsync status=none",
    "zstd --sparse": "zstd -q -d --sparse {folder}/disk.raw.zst -o {out} && sync {out}",
    "zstd -dc to /dev/null": "zstd -dc {folder}/disk.raw.zst > /dev/null",
}
PACK = {
    "cdi-importer pack": "{us} pack --quiet {folder}/disk.raw oci:{out}",
    # The first run finds the digest that names the layer, the second one writes it.
    "zstd -3 twice": "zstd -3 --single-thread -c {folder}/disk.raw | sha256sum > /dev/null && "
    "zstd -3 --single-thread -q {folder}/disk.raw -o {out} && sync {out}",
}
RESTORE = {
    "cdi-importer restore": "{us} restore --quiet {backups} {out}",
    "qemu-img rebase, convert": "{rebase} && qemu-img convert -O raw {newest} {out} && sync {out}",
    "qemu-img rebase, convert -W": "{rebase} && qemu-img convert -W -m 16 -O raw {newest} {out} && sync {out}",
    "qemu-img rebase, convert -W -t none": "{rebase} && qemu-img convert -W -m 16 -t none -O raw {newest} {out} && sync {out}",
}


WAYS = {"import": IMPORT, "pack": PACK, "restore": RESTORE}


def main() -> None:
    options = arguments(__doc__, "importer")
    folder = options.folder
    prepare(folder)
    write_artifact(folder)
    write_backups(folder)
    words = {"us": options.programs / "cdi-importer", "folder": folder} | chain(folder)
    restored = f"qemu-img compare -q -f raw -F raw {folder}/restored.raw {{out}}"
    checks = {"import": "cmp {raw} {out}", "pack": "true", "restore": restored}
    become_subreaper()

    def measured(heading: str, name: str) -> Cost:
        warm(folder / ("disk.raw" if heading == "pack" else "disk.raw.zst"))
        check = "true" if "/dev/null" in name else checks[heading]
        return whole(WAYS[heading][name].format(out="{out}", **words), folder, folder, check, "out")

    costs = rounds(options.runs, [(heading, name) for heading, ways in WAYS.items() for name in ways], measured)
    for (heading, name), runs in costs.items():
        ours = costs[heading, next(iter(WAYS[heading]))]
        wall, cpu, rss, written = medians(runs, "wall", "cpu", "rss", "written")
        time, cpu_time = ratios(ours, runs, "wall", "cpu")
        print(
            f"{heading}: {name}: {wall:.2f} s, {cpu:.2f} CPU s, {rss / 2**20:.0f} MiB, {written / 1e6:.0f} MB written; "
            f"ours {time:.2f}x time, {cpu_time:.2f}x CPU"
        )


def write_artifact(folder: Path) -> None:
    """Writes `artifact`, an OCI layout of KubeVirt's media types, whose layer is disk.raw.zst."""
    layout = folder / "artifact"
    if layout.exists():
        return
    partial = folder / "artifact.partial"
    shutil.rmtree(partial, ignore_errors=True)
    layers = Layout(partial)
    shutil.copy(folder / "disk.raw.zst", partial / "layer")
    layer = layers.move(partial / "layer", "application/vnd.kubevirt.disk.raw+zstd")
    layer["annotations"] = {"io.kubevirt.disk.name": "rootdisk", "org.opencontainers.image.title": "rootdisk.raw.zst"}
    kind = "application/vnd.kubevirt.virtualmachine"
    layers.finish({}, f"{kind}.config.v1+json", layer, artifactType=f"{kind}.v1")
    partial.rename(layout)


def write_backups(folder: Path) -> None:
    """Writes the backups, a copy of them that qemu-img may link with each other, and `restored.raw`, the disk."""
    if (folder / "restored.raw").exists():
        return
    for kind in ("backups", "linked"):
        shutil.rmtree(folder / kind, ignore_errors=True)
        (folder / kind).mkdir()
    sh(f"qemu-img convert -O qcow2 {folder}/disk.raw {folder}/backups/0.qcow2")
    sh(f"qemu-img resize -q {folder}/backups/0.qcow2 {BACKUP_BYTES}")
    for number in range(1, BACKUPS + 1):
        file = folder / f"backups/{number}.qcow2"
        sh(f"qemu-img create -q -f qcow2 {file} {BACKUP_BYTES}")
        # Every other backup changes the same places.
        places = [(piece * (BACKUP_BYTES // PIECES) // PIECE_BYTES + number % 2) * PIECE_BYTES for piece in range(PIECES)]
        writes = "".join(f"write -q -P {number * 16 + piece % 16} {place} {PIECE_BYTES}\n" for piece, place in enumerate(places))
        subprocess.run(["qemu-io", "-f", "qcow2", file], input=writes, text=True, stdout=subprocess.DEVNULL, check=True)
    sh(f"cp {folder}/backups/* {folder}/linked/")
    words = chain(folder)
    sh(f"{words['rebase']} && qemu-img convert -O raw {words['newest']} {folder}/restored.part")
    (folder / "restored.part").rename(folder / "restored.raw")


def chain(folder: Path) -> dict[str, str]:
    links = [f"qemu-img rebase -u -F qcow2 -b {number - 1}.qcow2 {folder}/linked/{number}.qcow2" for number in range(1, BACKUPS + 1)]
    return {
        "backups": " ".join(f"{folder}/backups/{number}.qcow2" for number in range(BACKUPS + 1)),
        "rebase": " && ".join(links),
        "newest": f"{folder}/linked/{BACKUPS}.qcow2",
    }


if __name__ == "__main__":
    main()
