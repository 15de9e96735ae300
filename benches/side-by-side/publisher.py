"""Measures what it costs to verify a publisher: a given checksum, a signed list of checksums, and a signed image.

All use SHA-256. nginx serves the images on loopback; GnuPG signs.
"""

import statistics
import tempfile
from pathlib import Path

from images import prepare, sh, warm
from measure import become_subreaper
from server import Server
from whole import arguments, importer, measure

IMAGES = ["disk.raw", "disk.qcow2"]

MEMORY = Path("/dev/shm")
"""Disks are written here: the throughput of a disk varies by more than the cost."""

WAYS = {
    "no evidence": "",
    "--checksum": "--checksum sha256:$(cut -d' ' -f1 {work}/{image}.sums)",
    "--verify-sums": "--verify-sums {work}/{image}.sums --keyring {work}/keyring",
    "--signature": "--signature {work}/{image}.sig --keyring {work}/keyring",
}


def sign(folder: Path, work: Path) -> None:
    gpg = f"gpg --homedir {work}/home --batch --quiet --digest-algo SHA256 --pinentry-mode loopback --passphrase ''"
    sh(f"mkdir -m 700 {work}/home && {gpg} --quick-gen-key publisher rsa3072 sign never && {gpg} --output {work}/keyring --export")
    for image in IMAGES:
        sh(f"cd {folder} && sha256sum {image} > {work}/{image}.sums && {gpg} --output {work}/{image}.sums.gpg --detach-sign {work}/{image}.sums")
        sh(f"{gpg} --output {work}/{image}.sig --detach-sign {folder}/{image}")
    sh(f"gpgconf --homedir {work}/home --kill all")


def main() -> None:
    options = arguments(__doc__)
    folder, binary = options.folder.resolve(), importer(options)
    prepare(folder, IMAGES[1:])
    become_subreaper()
    walls: dict[tuple, list[float]] = {}
    cpus: dict[tuple, list[float]] = {}
    with Server(folder) as web, tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sign(folder, work)
        for run in range(options.runs):
            for image in IMAGES:
                warm(folder / image)
                for way, words in list(WAYS.items())[:: -1 if run % 2 else 1]:
                    words = words.format(work=work, image=image)
                    cost = measure(f"{binary} import --quiet {web.url}/{image} {{out}} {words}", folder, MEMORY)
                    walls.setdefault((image, way), []).append(cost.wall)
                    cpus.setdefault((image, way), []).append(cost.cpu)
                    print(f"{image}, {way}: {cost}", flush=True)
    for (image, way), seconds in walls.items():
        ratios = [statistics.median(a / b for a, b in zip(costs[image, way], costs[image, "--checksum"])) for costs in (walls, cpus)]
        medians = [statistics.median(costs[image, way]) for costs in (walls, cpus)]
        print(f"{image}, {way}: {medians[0]:.2f} s, {medians[1]:.2f} CPU s; to --checksum {ratios[0]:.3f}×, CPU {ratios[1]:.3f}×")


if __name__ == "__main__":
    main()
