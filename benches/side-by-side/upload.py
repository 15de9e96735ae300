"""Measures uploads: cdi-uploadserver, and other programs that do the work of upstream's server.

curl sends the body over mutual TLS on loopback. Upstream's upload server receives images that need
conversion on a scratch volume and then runs qemu-img. nginx, which writes bodies to files,
replaces its first phase. The client's CPU time is not counted. Needs root for the loop device.
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
from images import DISK_BYTES, prepare, sh, warm

PORT = 8743
"""The port of the measured server on loopback."""

CONFINED: list[str] = []
"""A command in front of the servers' commands. limited.py uses it to limit them."""

CASES = [
    # The image, and the target.
    ("disk.raw", "file"),
    ("disk.qcow2", "file"),
    ("disk.zlib.qcow2", "file"),
    ("disk.raw.gz", "file"),
    ("disk.raw.gz", "device"),
]

NGINX = """
daemon off; master_process off; pid {tmp}/nginx.pid; error_log {tmp}/error.log;
events {{}}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {tmp}/bodies; client_body_in_file_only on;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certs}/server.crt; ssl_certificate_key {certs}/server.key;
    ssl_client_certificate {certs}/ca.crt; ssl_verify_client on;
    location / {{ proxy_pass http://127.0.0.1:{sink}; proxy_pass_request_body off; proxy_set_header Content-Length 0; }}
  }}
  server {{ listen 127.0.0.1:{sink}; location / {{ return 200; }} }}
}}
"""


@dataclass
class Cost:
    """Costs of one upload in seconds and MiB."""

    wall: float
    cpu: float
    rss: float


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    prepare(folder)
    server = options.server.resolve() if options.server else built("uploadserver") / "cdi-uploadserver"
    costs: dict[tuple, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-upload-") as work:
        certs = Path(work, "certs")
        make_certificates(server, certs, Path(work))
        for _ in range(options.runs):
            for image, target in CASES:
                for way in (ours, two_phases):
                    cost = measure(way, server, certs, folder / image, target, folder)
                    costs.setdefault((image, target, way.__name__), []).append(cost)
                    print(f"{image} -> {target}, {way.__name__}: {cost}", flush=True)
    print_table(costs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--server", type=Path, help="our binary, if it is not to be built")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    return parser.parse_args()


def make_certificates(server: Path, certs: Path, work: Path) -> None:
    """Makes the certificates, which our server writes at its start."""
    serving = start_ours(server, certs, ["--dir", str(work)])
    end(serving)


def start_ours(server: Path, certs: Path, target: list[str]) -> subprocess.Popen:
    listen = f"127.0.0.1:{PORT}"
    command = [*CONFINED, server, "serve", "--listen", listen, "--self-signed", certs, "--quiet", *target]
    serving = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until_it_listens(serving)
    return serving


def wait_until_it_listens(serving: subprocess.Popen) -> None:
    for _ in range(200):
        probe = subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"], stderr=subprocess.DEVNULL)
        if probe.returncode == 0:
            return
        if serving.poll() is not None:
            break
        time.sleep(0.02)
    raise SystemExit("the server does not listen")


def end(serving: subprocess.Popen) -> tuple[float, float]:
    """Ends a server. Returns its CPU seconds and MiB."""
    if serving.poll() is None:
        serving.send_signal(signal.SIGTERM)
    _, _, usage = os.wait4(serving.pid, 0)
    serving.returncode = 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def send(image: Path, certs: Path) -> None:
    client = f"--cacert {certs}/ca.crt --cert {certs}/client.crt --key {certs}/client.key"
    sh(f"curl --http1.1 -sS --fail -o /dev/null {client} -X POST -T {image} https://localhost:{PORT}/v1beta1/upload")


def ours(server: Path, certs: Path, image: Path, out: Path, tmp: Path) -> Cost:
    target = ["--device", str(out)] if out.is_block_device() else ["--dir", str(out.parent)]
    serving = start_ours(server, certs, target)
    begin = time.monotonic()
    send(image, certs)
    wall = time.monotonic() - begin
    return Cost(wall, *end(serving))


def two_phases(server: Path, certs: Path, image: Path, out: Path, tmp: Path) -> Cost:
    config = tmp / "nginx.conf"
    config.write_text(NGINX.format(tmp=tmp, certs=certs, port=PORT, sink=PORT + 1))
    serving = subprocess.Popen([*CONFINED, "nginx", "-c", config, "-e", tmp / "error.log"])
    wait_until_it_listens(serving)
    begin = time.monotonic()
    send(image, certs)
    (body,) = (tmp / "bodies").iterdir()
    phase = subprocess.Popen([*CONFINED, "bash", "-o", "pipefail", "-ec", second_phase(image, body, out)])
    _, status, usage = os.wait4(phase.pid, 0)
    wall = time.monotonic() - begin
    phase.returncode = os.waitstatus_to_exitcode(status)
    if phase.returncode != 0:
        raise SystemExit("the second phase failed")
    cpu, rss = end(serving)
    return Cost(wall, cpu + usage.ru_utime + usage.ru_stime, max(rss, usage.ru_maxrss / 1024))


def second_phase(image: Path, body: Path, out: Path) -> str:
    if image.name.endswith(".gz"):
        flags = "oflag=direct conv=fsync" if out.is_block_device() else "conv=sparse,fsync"
        return f"pigz -dc < {body} | dd of={out} bs=1M iflag=fullblock {flags} status=none"
    if image.name.endswith(".raw"):
        # Upstream writes images that need no conversion directly to the target.
        return f"mv {body} {out} && sync {out}"
    return f"qemu-img convert -t writeback -O raw {body} {out} && sync {out}"


def measure(way, server: Path, certs: Path, image: Path, target: str, folder: Path) -> Cost:
    """Makes one run to a fresh target and compares the disk with the raw one."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-upload-") as name:
        tmp = Path(name)
        (tmp / "target").mkdir()
        out = tmp / "target/disk.img"
        device = None
        if target == "device":
            sh(f"truncate -s {DISK_BYTES} {tmp}/backing")
            made = subprocess.run(
                ["losetup", "--find", "--show", "--direct-io=on", f"{tmp}/backing"],
                check=True,
                capture_output=True,
                text=True,
            )
            device = out = Path(made.stdout.strip())
        try:
            warm(image)
            cost = way(server, certs, image, out, tmp)
            sh(f"cmp {folder}/disk.raw {out}")
            return cost
        finally:
            if device:
                sh(f"losetup --detach {device}")


def print_table(costs: dict[tuple, list[Cost]]) -> None:
    print("| upload | cdi-uploadserver | two phases | ours to theirs |\n| --- | --- | --- | --- |")
    for image, target in CASES:
        us, them = (
            [statistics.median(getattr(cost, what) for cost in costs[image, target, way]) for what in ("wall", "cpu", "rss")]
            for way in ("ours", "two_phases")
        )
        cells = [f"{wall:.1f} s, {cpu:.1f} CPU s, {rss:.0f} MiB" for wall, cpu, rss in (us, them)]
        print(
            f"| {image} → {target} | {cells[0]} | {cells[1]} "
            f"| **{us[0] / them[0]:.2f}×** time, {us[1] / them[1]:.2f}× CPU |"
        )


if __name__ == "__main__":
    main()
