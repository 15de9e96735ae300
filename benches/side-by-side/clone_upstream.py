"""Measures clones in CDI's encoding between our programs and upstream's: every sender to every receiver.

A disk of 4 GiB with the files of the benchmarks' disk is sent from a device and from a directory,
over mutual TLS on loopback, to a file. `--upstream` names the folder of upstream's programs, built
as ci/versions describes. Needs root for the loop device and for a network and mounts of its own
(upstream's server listens on all addresses and writes to /data).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import clone
from clone import Cost
from images import DISK_BYTES, RAW, prepare, sh
from measure import medians, rounds
from options import ROOT, arguments
from report import print_table
from servers import end, wait_until_it_listens
from upload import PORT, make_certificates, start_ours

sys.path.append(str(ROOT / "ci"))
import upstream  # noqa: E402

SOURCES = ["device", "files"]

def main() -> None:
    more = {
        "--upstream": {"type": Path, "required": True, "help": "folder of upstream's programs"},
        "--inside": {"action": "store_true", "help": argparse.SUPPRESS},
    }
    options = arguments(__doc__, "cloner", "uploadserver", more=more)
    if not options.inside:
        upstream.DATA.mkdir(exist_ok=True)
        again = ["unshare", "--net", "--mount", "python3", *sys.argv, "--inside", "--programs", options.programs]
        raise SystemExit(subprocess.run(again).returncode)
    sh("ip link set lo up")
    folder = options.folder
    prepare(folder, [])
    programs = {"ours": options.programs, "upstream's": options.upstream.resolve()}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        certs = make_certificates(options.programs / "cdi-uploadserver", Path(name))
        with clone.places(Path(name), folder / RAW, str(DISK_BYTES)) as sources:
            disk = sources["disk file"]
            measured = lambda source, *ends: measure(programs, *ends, certs, sources[source], disk, folder)
            costs = rounds(options.runs, product(SOURCES, programs, programs), measured)
    print_rows(costs)


def measure(programs: dict, sender: str, receiver: str, certs: Path, source: Path, disk: Path, folder: Path) -> Cost:
    """Makes one run to a fresh target and compares the disk."""
    size = disk.stat().st_size
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        target = Path(name)
        if receiver == "ours":
            serving = start_ours(programs["ours"] / "cdi-uploadserver", certs, ["--dir", target])
        else:
            serving = upstream.start_server(programs[receiver], certs, size, PORT, target, subprocess.DEVNULL)
            wait_until_it_listens(serving, PORT)
        try:
            begin = time.monotonic()
            if sender == "ours":
                cloner_cpu, rss = clone.send(programs["ours"] / "cdi-cloner", certs, source, "snappy")
            else:
                sending = upstream.start_cloner(programs[sender], certs, size, clone.URL, source, stderr=subprocess.DEVNULL)
                cloner_cpu, rss = clone.succeed(sending)
            wall = time.monotonic() - begin
        finally:
            server_cpu, server_rss = end(serving)
            if receiver != "ours":
                sh(f"umount {upstream.DATA}")
        sh(f"cmp {disk} {target}/disk.img")
        return Cost(wall, cloner_cpu, server_cpu, max(rss, server_rss))


def print_rows(costs: dict[tuple, list[Cost]]) -> None:
    rows = []
    figures = {case: medians(of_case, "wall", "cloner_cpu", "server_cpu") for case, of_case in costs.items()}
    for (source, sender, receiver), (wall, cloner, server) in figures.items():
        _, their_cloner, their_server = figures[source, "upstream's", "upstream's"]
        ratios = f"{cloner / their_cloner:.2f}×; {server / their_server:.2f}×"
        rows.append([source, sender, receiver, f"{wall:.1f} s", f"{cloner:.1f}; {server:.1f} s", ratios])
    print_table("clone in snappy | cloner | server | wall | CPU of cloner; server | to upstream's", rows)


if __name__ == "__main__":
    main()
