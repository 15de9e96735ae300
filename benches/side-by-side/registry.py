"""Measures imports from a container registry: cdi-importer, and skopeo, tar and qemu-img in upstream's order.

docker-registry serves on loopback without TLS. Upstream's importer pulls with skopeo's library,
writes the disk to scratch space and converts it from there. The registry's CPU time is not
counted.
"""

import shutil
import subprocess
import tempfile
from itertools import product
from pathlib import Path

from images import prepare, sh
from layouts import Layout
from measure import become_subreaper, medians, ratios, rounds, whole
from options import arguments
from report import compared, figures, print_table
from servers import end, start

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


WAYS = {
    "ours": "{us} import {image} {{out}} --insecure --quiet > /dev/null",
    # Upstream's phases. The largest file that skopeo writes is the layer.
    "theirs": "skopeo --insecure-policy copy --quiet --src-tls-verify=false {image} dir:{{tmp}}; "
    "tar -C {{tmp}} --strip-components=1 -xf {{tmp}}/$(ls -S {{tmp}} | head -1); "
    "qemu-img convert -t writeback -O raw {{tmp}}/*.qcow2 {{out}}; sync {{out}}",
}


def main() -> None:
    options = arguments(__doc__, "importer")
    folder, us = options.folder, options.programs / "cdi-importer"
    prepare(folder)
    become_subreaper()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-registry-") as name:
        work = Path(name)
        (work / "config.yml").write_text(CONFIG.format(storage=work / "storage", port=PORT))
        registry = start(["docker-registry", "serve", work / "config.yml"], PORT)
        try:
            for image, compression in CASES:
                push(folder / image, compression, work)
            trials = [(*case, way) for case, way in product(CASES, WAYS)]
            measured = lambda image, layer, way: whole(WAYS[way].format(us=us, image=reference(image, layer)), folder)
            costs = rounds(options.runs, trials, measured)
        finally:
            end(registry)
    rows = []
    for case in CASES:
        ways = [costs[(*case, way)] for way in WAYS]
        cells = [
            f"{figures(*medians(way, 'wall', 'cpu', 'rss'))}, {medians(way, 'temporary')[0] / 2**20:.0f} MiB of temporary files"
            for way in ways
        ]
        rows.append([", ".join(case), *cells, compared(*ratios(*ways, "wall", "cpu"))])
    print_table("image, layer | cdi-importer | skopeo, tar, qemu-img | ours to theirs", rows)


def reference(image: str, compression: str) -> str:
    return f"docker://127.0.0.1:{PORT}/{image}:{compression}"


def push(image: Path, compression: str, work: Path) -> None:
    """Makes an image whose only layer contains the disk in /disk, and pushes it."""
    layout = Layout(work / "layout")
    packing = f"tar -C {image.parent} --transform 's,^,disk/,' -cf - {image.name} | {PACKERS[compression]} -c"
    sh(f"{packing} > {work}/layer")
    layer = layout.move(work / "layer", f"application/vnd.oci.image.layer.v1.tar+{compression}")
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    config = {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    layout.finish(config, "application/vnd.oci.image.config.v1+json", layer)
    target = reference(image.name, compression)
    sh(f"skopeo --insecure-policy copy --quiet --preserve-digests --dest-tls-verify=false oci:{layout.folder} {target}")
    shutil.rmtree(layout.folder)


if __name__ == "__main__":
    main()
