"""Compares kubectl-cdi with curl: uploads through the same proxy to the same upload server.

The uploads go over loopback, and over a link of 200 Mbit/s with a round trip of 20 ms. A relay
simulates that link, because not every kernel can shape traffic. The API server is a fake with one
claim; the tokens are the proxy's own.
"""

import http.server
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from images import RAW, prepare, sh, warm
from measure import medians, rounds
from options import arguments
from report import print_table
from servers import end, free_port, start
from upload_proxy import ROUTE, make_keys, start_proxy, token

RATE = 200e6 / 8
DELAY = 0.01
"""The slow link: bytes per second, and delay in seconds in each direction."""

PVC = "disk"


class Wire:
    """A relay to the proxy that counts the clients' bytes, and can be slow."""

    def __init__(self, server: int, is_slow: bool) -> None:
        self.server, self.is_slow, self.sent, self.free = server, is_slow, 0, time.monotonic()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server))
            threading.Thread(target=self.carry, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(server, client, False), daemon=True).start()

    def carry(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while piece := source.recv(64 << 10):
                if counts:
                    self.sent += len(piece)
                    if self.is_slow:
                        self.free = max(self.free, time.monotonic()) + len(piece) / RATE
                        time.sleep(max(0, self.free - time.monotonic()))
                elif self.is_slow:
                    time.sleep(2 * DELAY)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def serve_api(token: str) -> int:
    """A fake API server."""
    claim = {
        "metadata": {"name": PVC, "uid": str(os.getpid()), "annotations": {
            "cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.pod.ready": "true",
            "cdi.kubevirt.io/storage.pod.phase": "Running",
        }},
        "spec": {"volumeMode": "Block", "resources": {"requests": {"storage": "8Gi"}}},
    }

    class Api(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            answer, status = {}, 200
            if self.path.startswith("/apis/upload.cdi"):
                answer = {"status": {"token": token}}
                # The client uploads next. Half a second later, the pod is reported as ended.
                threading.Timer(0.5, lambda: claim["metadata"]["annotations"].update(DONE)).start()
            elif "/persistentvolumeclaims/" in self.path:
                answer = claim
            elif "/datavolumes/" in self.path:
                answer, status = {"kind": "Status", "reason": "NotFound", "details": {"kind": "datavolumes"}}, 404
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


DONE = {"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}


@dataclass
class Cost:
    """Seconds and bytes of one upload."""

    wall: float
    sent: int


def main() -> None:
    options = arguments(__doc__, "kubectl-cdi", "uploadserver", "uploadproxy")
    prepare(options.folder, [])
    links = {"loopback": False, "200 Mbit/s, 20 ms": True}
    with tempfile.TemporaryDirectory(dir=options.folder.parent, prefix="cdi-client-") as work:
        measured = lambda link, way: measure(WAYS[way], options.programs, options.folder / RAW, work, links[link])
        costs = rounds(options.runs, product(links, WAYS), measured)
    rows = []
    for link, is_slow in links.items():
        us, them = (medians(costs[link, way], "wall", "sent") for way in WAYS)
        cells = [f"{wall:.1f} s" + (f", {sent / 1e6:.0f} MB" if is_slow else "") for wall, sent in (us, them)]
        sent = f", {us[1] / them[1]:.2f}× bytes" if is_slow else ""
        rows.append([link, *cells, f"**{us[0] / them[0]:.2f}×** time{sent}"])
    print_table("raw disk of 4 GiB | kubectl-cdi | curl | ours to it", rows)


def measure(way, programs: Path, image: Path, work: str, is_slow: bool) -> Cost:
    """Makes one upload, and compares its disk."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        tmp, proxy = Path(name), programs / "examples/uploadproxy-dev"
        certs, (upload, front) = tmp / "certs", (free_port(), free_port())
        (tmp / "target").mkdir()
        serve = [programs / "cdi-uploadserver", "serve", "--listen", f"127.0.0.1:{upload}", "--self-signed", certs, "--quiet"]
        server = start([*serve, "--dir", tmp / "target", "--once"], upload)
        make_keys(tmp)
        (tmp / "routes.toml").write_text(ROUTE.format(pvc=PVC, url=f"https://localhost:{upload}"))
        serving = start_proxy(proxy, tmp, certs, front)
        wire = Wire(front, is_slow)
        port = wire.port if is_slow else front
        try:
            warm(image)
            begin = time.monotonic()
            way(programs, image, certs, f"https://localhost:{port}", token(proxy, tmp, PVC), tmp)
            wall = time.monotonic() - begin
        finally:
            end(serving)
            end(server)
        sh(f"cmp {image} {tmp}/target/disk.img")
        return Cost(wall, wire.sent)


def curl(programs: Path, image: Path, certs: Path, url: str, token: str, tmp: Path) -> None:
    secret = f"-H 'Authorization: Bearer {token}'"
    sh(f"curl --http1.1 -sS --fail -o /dev/null --cacert {certs}/ca.crt {secret} -X POST -T {image} {url}/v1beta1/upload")


def ours(programs: Path, image: Path, certs: Path, url: str, token: str, tmp: Path) -> None:
    api = f"http://127.0.0.1:{serve_api(token)}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": api}}], "users": [{"name": "a", "user": {}}],
    }
    (tmp / "kubeconfig").write_text(json.dumps(config))
    command = [programs / "kubectl-cdi", "upload", image, f"pvc/{PVC}", "--no-create", "--quiet", "--uploadproxy-url", url]
    command += ["--cacert", certs / "ca.crt", "--kubeconfig", tmp / "kubeconfig"]
    subprocess.run(command, check=True, env={**os.environ, "XDG_STATE_HOME": str(tmp)})


WAYS = {"ours": ours, "curl": curl}


if __name__ == "__main__":
    main()
