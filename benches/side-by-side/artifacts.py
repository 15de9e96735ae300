"""Measures disks in OCI artifacts: `import` and `pack` beside zstd, and `restore` beside qemu-img.

The artifact holds the disk of the other benchmarks as KubeVirt exports it: one bare zstd layer. The
backups are a full one of 10 GiB and ten incremental ones, as KubeVirt's push mode leaves them.
Every command ends when the data is synced. Every result is compared.
"""

import hashlib
import json
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from images import RAW, prepare, sh, warm
from measure import Cost, become_subreaper, run
from whole import arguments, importer

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


def main() -> None:
    options = arguments(__doc__)
    folder = options.folder.resolve()
    prepare(folder)
    write_artifact(folder)
    write_backups(folder)
    words = {"us": importer(options), "folder": folder} | chain(folder)
    become_subreaper()
    for heading, ways, compare in [
        ("import", IMPORT, f"cmp {folder}/{RAW} {{out}}"),
        ("pack", PACK, None),
        ("restore", RESTORE, f"qemu-img compare -q -f raw -F raw {folder}/restored.raw {{out}}"),
    ]:
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(options.runs):
            for name in reversed(ways) if number % 2 else ways:
                warm(folder / ("disk.raw" if heading == "pack" else "disk.raw.zst"))
                sh("sync")
                with tempfile.TemporaryDirectory(dir=folder, prefix="out-") as work:
                    tmp, out = Path(work, "tmp"), Path(work, "out")
                    tmp.mkdir()
                    costs[name].append(run(ways[name].format(out=out, **words), tmp))
                    if compare and "/dev/null" not in name:
                        sh(compare.format(out=out))
        print_costs(heading, costs)


def print_costs(heading: str, costs: dict[str, list[Cost]]) -> None:
    ours = next(iter(costs.values()))
    for name, runs in costs.items():
        wall, cpu, rss, written = (statistics.median(getattr(cost, what) for cost in runs) for what in ("wall", "cpu", "rss", "written"))
        ratios = [statistics.median(getattr(a, what) / getattr(b, what) for a, b in zip(ours, runs)) for what in ("wall", "cpu")]
        print(
            f"{heading}: {name}: {wall:.2f} s, {cpu:.2f} CPU s, {rss / 2**20:.0f} MiB, {written / 1e6:.0f} MB written; "
            f"ours {ratios[0]:.2f}x time, {ratios[1]:.2f}x CPU",
            flush=True,
        )


def write_artifact(folder: Path) -> None:
    """Writes `artifact`, an OCI layout of KubeVirt's media types, whose layer is disk.raw.zst."""
    layout = folder / "artifact"
    if layout.exists():
        return
    partial = folder / "artifact.partial"
    shutil.rmtree(partial, ignore_errors=True)
    blobs = partial / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes, media_type: str) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    layer = add((folder / "disk.raw.zst").read_bytes(), "application/vnd.kubevirt.disk.raw+zstd")
    layer["annotations"] = {"io.kubevirt.disk.name": "rootdisk", "org.opencontainers.image.title": "rootdisk.raw.zst"}
    config = add(b"{}", "application/vnd.kubevirt.virtualmachine.config.v1+json")
    head = {"schemaVersion": 2, "artifactType": "application/vnd.kubevirt.virtualmachine.v1"}
    manifest = add(json.dumps(head | {"config": config, "layers": [layer]}).encode(), "application/vnd.oci.image.manifest.v1+json")
    (partial / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (partial / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
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
