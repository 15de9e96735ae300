"""Measures uploads: cdi-uploadserver, and other programs that do the work of upstream's server.

curl sends the body over mutual TLS on loopback. Upstream's upload server receives images that need
conversion on a scratch volume and then runs qemu-img. nginx, which writes bodies to files,
replaces its first phase. The client's CPU time is not counted. Needs root for the loop device.
"""

import subprocess
import tempfile
import time
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from images import DISK_BYTES, attached, prepare, sh, warm
from measure import Cost, rounds
from options import arguments
from report import print_pairs
from servers import end, start, wait

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


def main() -> None:
    options = arguments(__doc__, "uploadserver")
    folder, server = options.folder, options.programs / "cdi-uploadserver"
    prepare(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-upload-") as work:
        certs = make_certificates(server, Path(work))
        trials = [(*case, way) for case, way in product(CASES, WAYS)]
        costs = rounds(options.runs, trials, lambda image, target, way: measure(WAYS[way], server, certs, folder / image, target))
    print_pairs("upload | target | cdi-uploadserver | two phases | ours to theirs", costs, list(WAYS))


def make_certificates(server: Path, work: Path) -> Path:
    """Makes the certificates, which our server writes at its start. Returns their folder."""
    end(start_ours(server, work / "certs", ["--dir", work]))
    return work / "certs"


def start_ours(server: Path, certs: Path, target: list) -> subprocess.Popen:
    listen = f"127.0.0.1:{PORT}"
    return start([*CONFINED, server, "serve", "--listen", listen, "--self-signed", certs, "--quiet", *target], PORT)


def send(image: Path, certs: Path) -> None:
    client = f"--cacert {certs}/ca.crt --cert {certs}/client.crt --key {certs}/client.key"
    sh(f"curl --http1.1 -sS --fail -o /dev/null {client} -X POST -T {image} https://localhost:{PORT}/v1beta1/upload")


def ours(server: Path, certs: Path, image: Path, out: Path, tmp: Path) -> Cost:
    target = ["--device", out] if out.is_block_device() else ["--dir", out.parent]
    serving = start_ours(server, certs, target)
    begin = time.monotonic()
    send(image, certs)
    wall = time.monotonic() - begin
    return Cost(wall, *end(serving))


def two_phases(server: Path, certs: Path, image: Path, out: Path, tmp: Path) -> Cost:
    config = tmp / "nginx.conf"
    config.write_text(NGINX.format(tmp=tmp, certs=certs, port=PORT, sink=PORT + 1))
    serving = start([*CONFINED, "nginx", "-c", config, "-e", tmp / "error.log"], PORT, stderr=None)
    begin = time.monotonic()
    send(image, certs)
    (body,) = (tmp / "bodies").iterdir()
    phase = subprocess.Popen([*CONFINED, "bash", "-o", "pipefail", "-ec", second_phase(image, body, out)])
    phase_cpu, phase_rss = wait(phase)
    wall = time.monotonic() - begin
    if phase.returncode != 0:
        raise SystemExit("the second phase failed")
    cpu, rss = end(serving)
    return Cost(wall, cpu + phase_cpu, max(rss, phase_rss))


WAYS = {"ours": ours, "two phases": two_phases}


def second_phase(image: Path, body: Path, out: Path) -> str:
    if image.name.endswith(".gz"):
        flags = "oflag=direct conv=fsync" if out.is_block_device() else "conv=sparse,fsync"
        return f"pigz -dc < {body} | dd of={out} bs=1M iflag=fullblock {flags} status=none"
    if image.name.endswith(".raw"):
        # Upstream writes images that need no conversion directly to the target.
        return f"mv {body} {out} && sync {out}"
    return f"qemu-img convert -t writeback -O raw {body} {out} && sync {out}"


def measure(way, server: Path, certs: Path, image: Path, target: str) -> Cost:
    """Makes one run to a fresh target and compares the disk with the raw one."""
    with tempfile.TemporaryDirectory(dir=image.parent.parent, prefix="cdi-upload-") as name:
        tmp = Path(name)
        (tmp / "target").mkdir()
        sh(f"truncate -s {DISK_BYTES} {tmp}/backing")
        device = attached(tmp / "backing", "--direct-io=on") if target == "device" else nullcontext(tmp / "target/disk.img")
        with device as out:
            warm(image)
            cost = way(server, certs, image, out, tmp)
            sh(f"cmp {image.parent}/disk.raw {out}")
        return cost


if __name__ == "__main__":
    main()
