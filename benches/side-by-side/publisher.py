"""Measures what it costs to verify a publisher: a given checksum, a signed list of checksums, and a signed image.

All use SHA-256. nginx serves the images on loopback; GnuPG signs.
"""

import tempfile
from itertools import product
from pathlib import Path

from images import prepare, sh, warm
from measure import Cost, become_subreaper, medians, ratios, rounds, whole
from options import arguments
from servers import Server

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
    options = arguments(__doc__, "importer")
    folder = options.folder
    prepare(folder, IMAGES[1:])
    become_subreaper()
    with Server(folder) as web, tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sign(folder, work)

        def measured(image: str, way: str) -> Cost:
            warm(folder / image)
            words = WAYS[way].format(work=work, image=image)
            return whole(f"{options.programs}/cdi-importer import --quiet {web.url}/{image} {{out}} {words}", folder, MEMORY)

        costs = rounds(options.runs, product(IMAGES, WAYS), measured)
    for (image, way), runs in costs.items():
        (wall, cpu), (time, cpu_time) = medians(runs, "wall", "cpu"), ratios(runs, costs[image, "--checksum"], "wall", "cpu")
        print(f"{image}, {way}: {wall:.2f} s, {cpu:.2f} CPU s; to --checksum {time:.3f}×, CPU {cpu_time:.3f}×")


if __name__ == "__main__":
    main()
