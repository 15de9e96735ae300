"""Measures imports of VMware disks from a stand-in for an ESXi host, over lines that are limited as a host limits them.

The disk has 10 GiB, of which 3 GiB are used: random bytes in runs of 64 KiB to 8 MiB. Compared are one connection, the
four of the default, and a client that reads 64 KiB at a time; and an export by lease with curl of the same URL. The
stand-in shares the machine with the client, and its CPU time follows the semicolon.
"""

import os
import random
import re
import socket
import ssl
import struct
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, become_subreaper, medians, rounds, whole
from options import ROOT, arguments, machine

MIB = 1 << 20
BLOCK_BYTES = 64 << 10

DISKS = {"nfc": (10 << 30, 3 << 30), "lease": (4 << 30, 3 << 29)}
"""Sizes of the disks, and how much of them is used."""

OURS = (
    "{us} import --quiet 'vmware+{url}?vm=502a1c2e-0000-4000-8000-000000000001&disk=[ds] guest/disk.vmdk' {out} --user user"
    " --checkpoint 'checkpoint 1' --password-file {folder}/password --cacert {folder}/ca.crt --transport {how}"
)

WAYS = {
    "nfc, 1 connection": ("nfc --connections 1", 1),
    "nfc": ("nfc", 4),
    "lease": ("lease", 1),
}
"""The options of each way, and over how many connections it reads."""

SYNCHRONOUS_BYTES = 128 * MIB
"""What the client that reads one block at a time reads of the used areas."""

MORE = {
    "--rtt": {"type": float, "default": 1, "help": "round trip in ms [1]"},
    "--per-connection": {"type": float, "default": 50, "help": "MB/s [50]"},
}


@dataclass
class Import:
    """Costs of one run: seconds, and bytes. `data` is the used part of the disk, or what was read of it."""

    wall: float
    data: int
    wire: int
    server_cpu: float
    cpu: float = 0
    rss: int = 0

    @property
    def rate(self) -> float:
        return self.data / self.wall / 1e6


class Host:
    """A vSphere and its host, with the disk in this folder, while the block runs."""

    def __init__(self, kind: str, folder: Path, options) -> None:
        self.folder = folder / f"esxi-{kind}"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "password").write_text("secret")
        self.disk = self.folder / "disk.raw"
        if not self.disk.exists():
            make_disk(self.disk, *DISKS[kind])
        self.data = self.disk.stat().st_blocks * 512
        program = ROOT / "target" / machine() / "release/examples/esxi_host"
        numbers = [str(int(number)) for number in (options.rtt * 500, 1000 / options.per_connection)]
        self.command = [program, self.disk, *numbers, *["lease"][: kind == "lease"]]

    def __enter__(self) -> "Host":
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.trust = ssl.create_default_context(cafile=self.folder / "ca.crt")
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()

    def totals(self) -> tuple[int, float]:
        """Returns the bytes that clients have received, and the CPU time of the stand-in."""
        print(file=self.process.stdin, flush=True)
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(self.process.stdout.readline()), (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def measured(self, work) -> Import:
        """Measures `work`, which returns its costs and how much it has read."""
        before = self.totals()
        cost, data = work()
        wire, cpu = (now - then for now, then in zip(self.totals(), before))
        return Import(cost.wall, data, wire, cpu, cost.cpu, cost.rss)

    def call(self, method: str, kind: str, name: str, arguments: str = "") -> str:
        body = f'<Envelope><Body><{method}><_this type="{kind}">{name}</_this>{arguments}</{method}></Body></Envelope>'
        with urllib.request.urlopen(f"{self.url}sdk", body.encode(), context=self.trust) as reply:
            return reply.read().decode()


class Reader:
    """A client that has one read under way."""

    def __init__(self, host: Host) -> None:
        ticket = host.call("NfcGetVmFiles", "NfcService", "nfcService", "<vm>vm-1</vm>")
        secret, port, service = (re.search(f"<{name}>(.*?)</{name}>", ticket)[1] for name in ("sessionId", "port", "service"))
        tcp = socket.create_connection(("127.0.0.1", int(port)))
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while tcp.recv(1) != b"\n":
            pass
        # The host's daemon ends TLS without a message, so it gets a descriptor of its own.
        daemon = host.trust.wrap_socket(socket.socket(fileno=os.dup(tcp.fileno())), server_hostname="127.0.0.1")
        daemon.sendall(f"SESSION {secret}\r\nBANNER \r\n".encode())
        for answered in ("THUMBPRINT_SHA2 PlainText", f"PROXY {service}ssl"):
            line(daemon)
            daemon.sendall(f"{answered}\r\n".encode())
        line(daemon)
        os.close(daemon.detach())
        self.stream = host.trust.wrap_socket(tcp, server_hostname="127.0.0.1")
        self.operation = 0
        for message in classic(43, b"PlainText"), classic(33), classic(51, struct.pack("<I", 11)):
            self.stream.sendall(message)
        self.receive(2 * 264)
        self.stream.sendall(classic(54, struct.pack("<II", 5, 7)) + b"benchnbdmode")
        for message in classic(55, struct.pack("<I", 3)), classic(52):
            self.stream.sendall(message)
        self.receive(264)
        path = b"[ds] guest/disk-snapshot-1.vmdk"
        for kind, payload in (2, bytes(16)), (9, bytes(12)), (22, struct.pack("<I", 1)):
            self.call(kind, payload, len(payload))
        opened = self.call(4, struct.pack("<IQIII", len(path), 0, 0, 2, 0x1E).ljust(60, b"\0") + path, 60)
        self.handle = opened[24:32]

    def receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += self.stream.recv(count - len(data))
        return bytes(data)

    def call(self, kind: int, request: bytes, size: int) -> bytes:
        """Sends a request, whose reply has a payload of `size` bytes."""
        header = struct.pack("<4I", 0xA100DA7A, kind, size, self.operation)
        self.stream.sendall(header + request)
        self.operation += 1
        return self.receive(16 + size)

    def read(self, offset: int) -> None:
        """Reads a block, which the host sends as one fragment."""
        size = BLOCK_BYTES
        reply = self.call(7, self.handle + struct.pack("<IIQQIII", 1, 3, offset, size, size, size, 0), 44)
        self.receive(struct.unpack_from("<I", reply, 16 + 36)[0])


def classic(kind: int, body: bytes = b"") -> bytes:
    return (struct.pack("<I", kind) + body).ljust(264, b"\0")


def line(stream: ssl.SSLSocket) -> None:
    while stream.recv(1) != b"\n":
        pass


def make_disk(path: Path, size: int, used: int) -> None:
    """Creates a disk with random bytes in runs."""
    chance = random.Random(1)
    with open(path, "wb") as disk:
        disk.truncate(size)
        place = 0
        while used > 0:
            run = min(BLOCK_BYTES * chance.randint(1, 128), used)
            # Spreads the rest over the rest of the disk.
            place += BLOCK_BYTES * chance.randint(0, 2 * (size - place - used) * run // used // BLOCK_BYTES)
            place = min(place, size - used)
            disk.seek(place)
            disk.write(chance.randbytes(run))
            place, used = place + run, used - run


def read_synchronously(host: Host) -> tuple[Cost, int]:
    disk, place, data = os.open(host.disk, os.O_RDONLY), 0, 0
    reader, start = Reader(host), time.monotonic()
    while data < SYNCHRONOUS_BYTES:
        place = os.lseek(disk, place, os.SEEK_DATA)
        reader.read(place)
        place, data = place + BLOCK_BYTES, data + BLOCK_BYTES
    os.close(disk)
    return Cost(time.monotonic() - start), data


def download(host: Host) -> tuple[Cost, int]:
    """Downloads an export with curl, without writing it."""
    answer = host.call("ExportSnapshot", "VirtualMachineSnapshot", "snapshot-1")
    lease = re.search(r"<returnval.*?>(.*?)</returnval>", answer)[1]
    for _ in range(2):
        ready = host.call("RetrievePropertiesEx", "PropertyCollector", "propertyCollector", f"<obj>{lease}</obj>")
    path = re.search(r"<url>https://\*/(nfc/[^<]*vmdk)</url>", ready)[1]
    command = ["curl", "-sSf", "--cacert", host.folder / "ca.crt", "-b", "vmware_soap_session=tracked", host.url + path]
    start = time.monotonic()
    subprocess.run([*command, "-o", "/dev/null"], check=True)
    wall = time.monotonic() - start
    host.call("HttpNfcLeaseAbort", "HttpNfcLease", lease)
    return Cost(wall), host.data


def main() -> None:
    options = arguments(__doc__, "importer", more=MORE)
    build = ["cargo", "build", "--release", "--quiet", "--package", "testkit", "--example", "esxi_host"]
    subprocess.run(build, cwd=ROOT, check=True)
    become_subreaper()
    program = options.programs / "cdi-importer"
    costs = {}
    for kind in DISKS:
        with Host(kind, options.folder, options) as host:

            def measured(way: str) -> Import:
                if way == "64 KiB at a time":
                    return host.measured(lambda: read_synchronously(host))
                if way == "curl":
                    return host.measured(lambda: download(host))
                command = OURS.format(us=program, url=host.url, out="{out}", folder=host.folder, how=WAYS[way][0])
                return host.measured(lambda: (whole(command, host.folder, check="cmp {raw} {out}"), host.data))

            theirs = "curl" if kind == "lease" else "64 KiB at a time"
            ways = [theirs, *(way for way in WAYS if way.startswith(kind))]
            costs |= rounds(options.runs, [(way,) for way in ways], measured)
            (rate,) = medians(costs[(theirs,)], "rate")
            for way in ways:
                wall, ours, data, wire, cpu, rss, server = medians(
                    costs[(way,)], "wall", "rate", "data", "wire", "cpu", "rss", "server_cpu"
                )
                cap = options.per_connection * WAYS.get(way, ("", 1))[1]
                print(
                    f"* {way}: {wall:.1f}/{cpu:.1f}/{rss / MIB:.0f}; {server:.1f}; {ours:.0f} MB/s, {ours / cap:.2f} of the limit,"
                    f" {ours / rate:.2f}× {theirs}; {wire / data:.3f} of the data on the wire"
                )


if __name__ == "__main__":
    main()
