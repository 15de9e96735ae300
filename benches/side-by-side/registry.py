"""Measures imports from a container registry: cdi-importer, and skopeo, tar and qemu-img in upstream's order.

docker-registry serves on loopback without TLS. Upstream's importer pulls with skopeo's library,
writes the disk to scratch space and converts it from there. The registry's CPU time is not
counted.
"""

import hashlib
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from images import prepare, sh
from measure import Cost, become_subreaper
from whole import arguments, importer, measure

PORT = 8745
"""The port of the registry on loopback."""

CASES = [
    # The file in the image, and the compression of its layer.
    ("disk.qcow2", "gzip"),
    ("disk.qcow2", "zstd"),
    ("disk.zlib.qcow2", "gzip"),
]

PACKERS = {"gzip": "gzip -6 -n", "zstd": "zstd -q -3"}

CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {storage}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def main() -> None:
    options = arguments(__doc__)
    folder = options.folder.resolve()
    prepare(folder)
    binary = importer(options)
    become_subreaper()
    costs: dict[tuple, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-registry-") as work:
        registry = start_registry(Path(work))
        try:
            for image, compression in CASES:
                push(folder / image, compression, Path(work))
            for _ in range(options.runs):
                for case in CASES:
                    for way in (ours, theirs):
                        cost = measure(way(binary, reference(*case)), folder)
                        costs.setdefault((*case, way.__name__), []).append(cost)
                        print(f"{case}, {way.__name__}: {cost}", flush=True)
        finally:
            registry.terminate()
            registry.wait()
    print_table(costs)


def start_registry(work: Path) -> subprocess.Popen:
    config = work / "config.yml"
    config.write_text(CONFIG.format(storage=work / "storage", port=PORT))
    registry = subprocess.Popen(["docker-registry", "serve", config], stderr=subprocess.DEVNULL)
    for _ in range(200):
        probe = subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"], stderr=subprocess.DEVNULL)
        if probe.returncode == 0:
            return registry
        time.sleep(0.05)
    raise SystemExit("the registry does not listen")


def reference(image: str, compression: str) -> str:
    return f"docker://127.0.0.1:{PORT}/{image}:{compression}"


def push(image: Path, compression: str, work: Path) -> None:
    """Makes an image whose only layer contains the disk in /disk, and pushes it."""
    layout = work / "layout"
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    packing = f"tar -C {image.parent} --transform 's,^,disk/,' -cf - {image.name} | {PACKERS[compression]} -c"
    sh(f"{packing} > {work}/layer")
    layer = describe(work / "layer", f"application/vnd.oci.image.layer.v1.tar+{compression}", blobs)
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    config = document({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}, work)
    config = describe(config, "application/vnd.oci.image.config.v1+json", blobs)
    manifest = document({"schemaVersion": 2, "config": config, "layers": [layer]}, work)
    manifest = describe(manifest, "application/vnd.oci.image.manifest.v1+json", blobs)
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    target = reference(image.name, compression)
    sh(f"skopeo --insecure-policy copy --quiet --preserve-digests --dest-tls-verify=false oci:{layout} {target}")
    shutil.rmtree(layout)


def document(value: dict, work: Path) -> Path:
    file = work / "document"
    file.write_text(json.dumps(value))
    return file


def describe(file: Path, media_type: str, blobs: Path) -> dict:
    """Moves a file to the blobs. Returns its descriptor for manifests."""
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    size = file.stat().st_size
    file.rename(blobs / digest)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def ours(binary: Path, image: str) -> str:
    return f"{binary} import {image} {{out}} --insecure --quiet > /dev/null"


def theirs(_binary: Path, image: str) -> str:
    """Returns the command for upstream's phases. The largest file that skopeo writes is the layer."""
    largest = "$(ls -S {tmp} | head -1)"
    return (
        f"skopeo --insecure-policy copy --quiet --src-tls-verify=false {image} dir:{{tmp}}; "
        f"tar -C {{tmp}} --strip-components=1 -xf {{tmp}}/{largest}; "
        "qemu-img convert -t writeback -O raw {tmp}/*.qcow2 {out}; sync {out}"
    )


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    print("| image, layer | cdi-importer | skopeo, tar, qemu-img | ours to theirs |\n| --- | --- | --- | --- |")
    for case in CASES:
        us, them = (
            [
                statistics.median(getattr(cost, what) for cost in costs[(*case, way)])
                for what in ("wall", "cpu", "rss", "temporary")
            ]
            for way in ("ours", "theirs")
        )
        cells = [
            f"{wall:.1f} s, {cpu:.1f} CPU s, {rss / 2**20:.0f} MiB, {temporary / 2**20:.0f} MiB of temporary files"
            for wall, cpu, rss, temporary in (us, them)
        ]
        ratios = f"**{us[0] / them[0]:.2f}×** time, {us[1] / them[1]:.2f}× CPU"
        print(f"| {', '.join(case)} | {cells[0]} | {cells[1]} | {ratios} |")


if __name__ == "__main__":
    main()
