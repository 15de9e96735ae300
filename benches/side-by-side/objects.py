"""Measures imports from an S3 store: cdi-importer over one connection and over four, and a download with a conversion.

nginx on loopback replaces the store: it can serve anonymous GETs of path-style addresses and is
not a bottleneck. A second port limits each connection to 50 MB/s, as object stores do. `curl` to a
file, followed by `qemu-img convert`, equals `aws s3 cp` with one stream and the order of
upstream's importer. nginx's CPU time is not counted.
"""

import statistics
import tempfile
from pathlib import Path

from images import prepare, warm
from measure import Cost, become_subreaper
from server import Server
from whole import arguments, importer, measure

LIMIT_BYTES = 50_000_000
"""Bytes per second of each connection."""

CASES = [
    # The image, and the bytes per second of each connection.
    ("disk.qcow2", None),
    ("disk.zlib.qcow2", None),
    ("disk.zlib.qcow2", LIMIT_BYTES),
]


def one_connection(binary: Path, url: str, image: str) -> str:
    return ours(binary, url, image, 1)


def four_connections(binary: Path, url: str, image: str) -> str:
    return ours(binary, url, image, 4)


def ours(binary: Path, url: str, image: str, connections: int) -> str:
    options = f"--anonymous --connections {connections} --quiet"
    return f"AWS_ENDPOINT_URL={url} {binary} import {options} s3://images/{image} {{out}}"


def download(_binary: Path, url: str, image: str) -> str:
    return (
        f"curl -sSf -o {{tmp}}/image {url}/images/{image}; "
        "qemu-img convert -t writeback -O raw {tmp}/image {out}; sync {out}"
    )


WAYS = [one_connection, four_connections, download]


def main() -> None:
    options = arguments(__doc__)
    folder = options.folder.resolve()
    prepare(folder)
    binary = importer(options)
    become_subreaper()
    costs: dict[tuple, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-objects-") as bucket:
        Path(bucket, "images").symlink_to(folder)
        for image, limit in CASES:
            with Server(Path(bucket), limit) as server:
                for _ in range(options.runs):
                    for way in WAYS:
                        warm(folder / image)
                        cost = measure(way(binary, server.url, image), folder)
                        costs.setdefault((image, limit, way.__name__), []).append(cost)
                        print(f"{image}, {limit}, {way.__name__}: {cost}", flush=True)
    print_table(costs)


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    names = " | ".join(way.__name__.replace("_", " ") for way in WAYS)
    print(f"| image, each connection | {names} | four to download |\n| --- | --- | --- | --- | --- |")
    for image, limit in CASES:
        figures = {
            way.__name__: [
                statistics.median(getattr(cost, what) for cost in costs[(image, limit, way.__name__)])
                for what in ("wall", "cpu", "rss")
            ]
            for way in WAYS
        }
        cells = [f"{wall:.1f} s, {cpu:.1f} CPU s, {rss / 2**20:.0f} MiB" for wall, cpu, rss in figures.values()]
        us, them = figures["four_connections"], figures["download"]
        speed = f"{limit / 1e6:.0f} MB/s" if limit else "unlimited"
        ratio = f"**{us[0] / them[0]:.2f}×** time, {us[1] / them[1]:.2f}× CPU"
        print(f"| {image}, {speed} | {' | '.join(cells)} | {ratio} |")


if __name__ == "__main__":
    main()
