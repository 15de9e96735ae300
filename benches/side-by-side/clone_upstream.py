"""Measures clones in CDI's encoding between our programs and upstream's: every sender to every receiver.

A disk of 4 GiB with the files of the benchmarks' disk is sent from a device and from a directory,
over mutual TLS on loopback, to a file. `--upstream` names the folder of upstream's programs, built
as ci/versions describes. Needs root for the loop device and for a network and mounts of its own
(upstream's server listens on all addresses and writes to /data).
"""

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from build import built
from clone import attach
from images import make_disk, sh
from upload import PORT, make_certificates, start_ours, wait_until_it_listens

URL = f"https://localhost:{PORT}/v1beta1/upload"

SOURCES = ["device", "files"]

DATA = Path("/data")
"""Upstream's server always puts files here."""

CIPHERS = "TLS_AES_128_GCM_SHA256,ECDHE-RSA-AES128-GCM-SHA256,ECDHE-ECDSA-AES128-GCM-SHA256"
"""The cipher suites for upstream's server, which offers only those that it is given."""


@dataclass
class Cost:
    """Costs of one clone in seconds."""

    wall: float
    cloner_cpu: float
    server_cpu: float


@dataclass
class Setting:
    """The inputs of every clone."""

    programs: dict[str, Path]
    certs: Path
    client: str
    disk: Path
    disk_bytes: int

    def pem(self, name: str) -> str:
        return (self.certs / name).read_text()


def main() -> None:
    options = arguments()
    if not options.inside:
        DATA.mkdir(exist_ok=True)
        ours = options.programs or built("cloner", "uploadserver")
        again = ["unshare", "--net", "--mount", "python3", __file__, "--inside", "--programs", ours, "--upstream", options.upstream]
        again += ["--folder", options.folder, "--runs", str(options.runs)]
        raise SystemExit(subprocess.run(again).returncode)
    sh("ip link set lo up")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "disk.raw").exists():
        make_disk(folder / "disk.raw")
    programs = {"ours": options.programs.resolve(), "upstream's": options.upstream.resolve()}
    costs: dict[tuple, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        work = Path(name)
        certs = work / "certs"
        make_certificates(programs["ours"] / "cdi-uploadserver", certs, work)
        volume = work / "volume"
        volume.mkdir()
        disk = volume / "disk.img"
        sh(f"cp --sparse=always {folder}/disk.raw {disk}")
        sh(f"cp --sparse=never {disk} {work}/device.img && sync {disk} {work}/device.img")
        setting = Setting(programs, certs, client_of(certs), disk, disk.stat().st_size)
        device = attach(work / "device.img")
        try:
            places = {"device": device, "files": volume}
            for _ in range(options.runs):
                for source in SOURCES:
                    for sender in programs:
                        for receiver in programs:
                            cost = clone(setting, sender, receiver, places[source], folder)
                            costs.setdefault((source, sender, receiver), []).append(cost)
                            print(f"{source}, {sender} to {receiver}: {cost}", flush=True)
        finally:
            sh(f"losetup --detach {device}")
    print_table(costs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    parser.add_argument("--programs", type=Path, help="folder of our programs, if they are not to be built")
    parser.add_argument("--upstream", type=Path, required=True, help="folder of upstream's programs")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def client_of(certs: Path) -> str:
    """The name in the client's certificate."""
    subject = ["openssl", "x509", "-in", certs / "client.crt", "-noout", "-subject", "-nameopt", "multiline"]
    lines = subprocess.run(subject, check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.split("=")[1].strip() for line in lines if "commonName" in line)


def clone(setting: Setting, sender: str, receiver: str, source: Path, folder: Path) -> Cost:
    """Makes one run to a fresh target and compares the disk."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-clone-") as name:
        target = Path(name)
        serving = start(setting, receiver, target)
        try:
            begin = time.monotonic()
            cloner_cpu = send(setting, sender, source)
            wall = time.monotonic() - begin
        finally:
            server_cpu = end(serving)
            if receiver != "ours":
                sh(f"umount {DATA}")
        sh(f"cmp {setting.disk} {target}/disk.img")
        return Cost(wall, cloner_cpu, server_cpu)


def start(setting: Setting, receiver: str, target: Path) -> subprocess.Popen:
    server = setting.programs[receiver] / "cdi-uploadserver"
    if receiver == "ours":
        return start_ours(server, setting.certs, ["--dir", str(target)])
    sh(f"mount --bind {target} {DATA}")
    variables = {
        "LISTEN_ADDRESS": "127.0.0.1",
        "LISTEN_PORT": str(PORT),
        "DESTINATION": str(target / "disk.img"),
        "TLS_KEY_FILE": str(setting.certs / "server.key"),
        "TLS_CERT_FILE": str(setting.certs / "server.crt"),
        "CLIENT_CERT_FILE": str(setting.certs / "ca.crt"),
        "CLIENT_NAME": setting.client,
        "FILESYSTEM_OVERHEAD": "0.0",
        "PREALLOCATION": "false",
        "UPLOAD_IMAGE_SIZE": str(setting.disk_bytes),
        "TLS_CIPHERS": CIPHERS,
        "TLS_MIN_VERSION": "VersionTLS12",
    }
    serving = subprocess.Popen([server], env=os.environ | variables, cwd=target, stderr=subprocess.DEVNULL)
    wait_until_it_listens(serving)
    return serving


def send(setting: Setting, sender: str, source: Path) -> float:
    """Clones to the listening server. Returns the CPU seconds of the cloner."""
    cloner = setting.programs[sender] / "cdi-cloner"
    if sender == "ours":
        client = ["--cacert", setting.certs / "ca.crt", "--cert", setting.certs / "client.crt", "--key", setting.certs / "client.key"]
        command, variables = [cloner, "clone", source, URL, "--encoding", "snappy", "--quiet", *client], {}
    else:
        kind = "filesystem-clone" if source.is_dir() else "blockdevice-clone"
        command = [cloner, "-content-type", kind, "-mount", source, "-upload-bytes", str(setting.disk_bytes)]
        variables = {
            "OWNER_UID": "bench",
            "UPLOAD_URL": URL,
            "CLIENT_KEY": setting.pem("client.key"),
            "CLIENT_CERT": setting.pem("client.crt"),
            "SERVER_CA_CERT": setting.pem("ca.crt"),
            "PREALLOCATION": "false",
        }
    sending = subprocess.Popen(command, env=os.environ | variables, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(sending.pid, 0)
    sending.returncode = os.waitstatus_to_exitcode(status)
    if sending.returncode != 0:
        raise SystemExit("the clone failed")
    return usage.ru_utime + usage.ru_stime


def end(serving: subprocess.Popen) -> float:
    """Waits until a server ends, as it does when it has a disk, or ends it. Returns its CPU seconds."""
    # Popen.wait would lose the resource usage of a process that has ended.
    os.kill(serving.pid, signal.SIGTERM)
    _, status, usage = os.wait4(serving.pid, 0)
    serving.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    print("| clone in snappy | cloner | server | wall | CPU of cloner; server | to upstream's |\n| --- | --- | --- | --- | --- | --- |")
    medians = {
        case: [statistics.median(getattr(cost, what) for cost in of_case) for what in ("wall", "cloner_cpu", "server_cpu")]
        for case, of_case in costs.items()
    }
    for (source, sender, receiver), (wall, cloner, server) in medians.items():
        _, their_cloner, their_server = medians[source, "upstream's", "upstream's"]
        ratios = f"{cloner / their_cloner:.2f}×; {server / their_server:.2f}×"
        print(f"| {source} | {sender} | {receiver} | {wall:.1f} s | {cloner:.1f}; {server:.1f} s | {ratios} |")


if __name__ == "__main__":
    main()
