"""Measures imports over distant networks: round trips, losses, and limits of each connection and of the link.

Compares cdi-importer (as it is, and with fixed numbers of connections) with aria2c followed by `qemu-img convert`, with
nbdkit's curl plugin, and with curl, which writes no disk. All combinations of --rtt, --loss, --link and
--per-connection are measured. Needs root for network namespaces, and a C compiler for the link between them (link.c).
"""

import argparse
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import network
import ways
from images import RAW, prepare, sh, warm
from measure import Cost, become_subreaper, medians, rounds, whole
from options import arguments
from report import print_table
from servers import Server, end

NEAR, FAR = "10.99.0.1", "10.99.0.2"
"""Addresses of the two ends of the link."""

QUEUE_PACKETS = 10_000
"""Packets that a device holds between two looks of link.c: 1 Gbit/s sends 8 in that time, but whole windows at once."""

ARIA2 = (
    "aria2c --quiet --file-allocation=none -x16 -s16 -k1M -d {tmp} -o image {url}"
    " && qemu-img convert -W -O raw {tmp}/image {out} && sync {out}"
)

OURS = "{us} import --quiet {url} {out}"

METHODS = {
    "ours": OURS,
    "ours, 1": OURS + " --connections 1",
    "ours, 4": OURS + " --connections 4",
    "ours, 8": OURS + " --connections 8",
    "aria2c -x16, convert": ARIA2,
    "nbdkit curl": ways.NBDKIT_CONVERT.command,
    "curl to /dev/null": ways.DISCARD.command,
}
"""Maps each method to its command. For a raw disk, nbdkit's client is nbdcopy."""


MORE = {
    "--target": {"type": Path, "help": "disks are written here [beside the images]"},
    "--image": {"default": "disk.qcow2", "help": "disk.raw, disk.qcow2, disk.zlib.qcow2 [disk.qcow2]"},
    "--part": {"type": int, "default": 64, "help": "MiB from the beginning of the disk; 0 for all [64]"},
    "--methods": {"nargs": "+", "choices": METHODS, "help": "[all]"},
    "--rtt": {"type": float, "nargs": "+", "default": [20], "help": "round trips in ms, such as 1 20 100 [20]"},
    "--loss": {"type": float, "nargs": "+", "default": [0], "help": "lost packets in percent, such as 0 0.1 [0]"},
    "--link": {"type": float, "nargs": "+", "default": [1000], "help": "Mbit/s; 0 for loopback, with no round trip [1000]"},
    "--per-connection": {"type": float, "nargs": "+", "default": [0], "help": "MB/s, such as 5 20 50; 0 for no limit [0]"},
    "--congestion": {"default": network.CONGESTION, "help": f"congestion control [{network.CONGESTION}]"},
}


@dataclass(frozen=True)
class Distance:
    """A network: milliseconds, percent, Mbit/s (0 for loopback), MB/s of each connection (0 for no limit), congestion control."""

    rtt: float
    loss: float
    link: float
    per_connection: float
    congestion: str

    def __str__(self) -> str:
        limit = f"{self.per_connection:g} MB/s" if self.per_connection else "any rate"
        link = f"{self.rtt:g} ms, {self.loss:g} % lost, {self.link:g} Mbit/s" if self.link else "loopback"
        return f"{link}, {limit} per connection"

    def serve(self, stack: ExitStack, folder: Path) -> Server:
        """Starts a server at this distance. It runs until `stack` is closed."""
        limit = int(self.per_connection * 1e6) or None
        if not self.link:
            return stack.enter_context(Server(folder, limit))
        enter = ("nsenter", "--net", "--target", str(self.make_link(stack)))
        return stack.enter_context(Server(folder, limit, FAR, enter))

    def make_link(self, stack: ExitStack) -> int:
        """Makes another network, which is reachable by a link, and returns the id of a process in it."""
        program = Path(stack.enter_context(tempfile.TemporaryDirectory()), "link")
        sh(f"cc -O2 -o {program} {Path(__file__).with_name('link.c')}")
        far = subprocess.Popen(["sleep", "infinity"], preexec_fn=lambda: network.enter(self.congestion))
        stack.callback(end, far)
        numbers = [self.rtt * 500, self.loss * 10_000, self.link * 1e6]
        command = [program, "near", "far", *(str(int(number)) for number in numbers)]
        link = subprocess.Popen(command, stdout=subprocess.PIPE)
        stack.callback(end, link)
        if not link.stdout.readline():
            raise SystemExit("link.c cannot create its devices")
        sh(f"ip link set far netns {far.pid}")
        for device, address, prefix in ("near", NEAR, ""), ("far", FAR, f"nsenter --net --target {far.pid}"):
            sh(f"{prefix} ip address add {address}/30 dev {device}")
            sh(f"{prefix} ip link set {device} txqueuelen {QUEUE_PACKETS} up")
            # Otherwise each connection begins with the window that the losses of the one before left.
            sh(f"{prefix} bash -c 'echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save'")
        return far.pid


def main() -> None:
    options = arguments(__doc__, "importer", more=MORE)
    folder = images(options)
    methods = {name: METHODS[name] for name in options.methods or METHODS}
    if options.image == RAW and "nbdkit curl" in methods:
        methods["nbdkit curl"] = ways.NBDKIT_COPY.command
    become_subreaper()
    network.enter(options.congestion)
    rows = []
    for values in product(options.rtt, options.loss, options.link, options.per_connection):
        distance = Distance(*values, options.congestion)
        with ExitStack() as stack:
            url = f"{distance.serve(stack, folder).url}/{options.image}"

            def measured(name: str) -> Cost:
                warm(folder / options.image)
                command = methods[name].replace("{url}", url).replace("{us}", str(options.programs / "cdi-importer"))
                # The result is compared with the raw disk, so a command that writes none gets that one.
                link = "" if "{out}" in command else f" && ln -s {folder / RAW} {{out}}"
                return whole(command + link, folder, options.target)

            costs = rounds(options.runs, [(name,) for name in methods], measured)
        rows += rows_of(distance, costs)
    print_table("network | method | wall | CPU | memory | to aria2c", rows)


def rows_of(distance: Distance, costs: dict[tuple, list[Cost]]) -> list[list[str]]:
    figures = {name: medians(runs, "wall", "cpu", "rss") for (name,), runs in costs.items()}
    aria2 = figures.get("aria2c -x16, convert")
    rows = []
    for name, (wall, cpu, rss) in figures.items():
        ratio = f"{wall / aria2[0]:.2f}×" if aria2 else ""
        rows.append([str(distance), name, f"{wall:.1f} s", f"{cpu:.1f} s", f"{rss / 2**20:.0f} MiB", ratio])
    return rows


def images(options: argparse.Namespace) -> Path:
    """Makes the image, and returns its folder. A part of the disk has a folder of its own."""
    whole_folder = options.folder
    names = [] if options.image == RAW else [options.image]
    if not options.part:
        prepare(whole_folder, names)
        return whole_folder
    prepare(whole_folder, [])
    folder = whole_folder / f"part-{options.part}"
    folder.mkdir(exist_ok=True)
    if not (folder / RAW).exists():
        sh(f"head -c {options.part << 20} {whole_folder / RAW} > {folder / RAW}")
    prepare(folder, names)
    return folder


if __name__ == "__main__":
    main()
