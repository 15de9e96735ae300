"""Compares kubectl-cdi with curl: uploads through the same proxy to the same upload server.

The uploads go over loopback, and over a link of 200 Mbit/s with a round trip of 20 ms. A relay
simulates that link, because not every kernel can shape traffic. The API server is a fake with one
claim; the tokens are the proxy's own.
"""

import argparse
import http.server
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from images import prepare, sh, warm
from upload_proxy import free_port, start

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


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    prepare(folder)
    costs: dict[tuple, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="cdi-client-") as name:
        for turn in range(options.runs):
            for is_slow in (False, True):
                ways = [ours, curl]
                for way in ways if turn % 2 == 0 else reversed(ways):
                    cost = measure(way, options.programs.resolve(), folder / "disk.raw", Path(name), is_slow)
                    costs.setdefault((is_slow, way.__name__), []).append(cost)
                    print(is_slow, way.__name__, cost, flush=True)
    print_table(costs)


def measure(way, programs: Path, image: Path, work: Path, is_slow: bool) -> tuple[float, int]:
    """Returns the duration and the bytes of one upload, and compares its disk."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        tmp = Path(name)
        certs, (upload, front) = tmp / "certs", (free_port(), free_port())
        (tmp / "target").mkdir()
        serve = [programs / "cdi-uploadserver", "serve", "--listen", f"127.0.0.1:{upload}", "--self-signed", certs, "--quiet"]
        server = start([*serve, "--dir", tmp / "target", "--once"], upload)
        keys = tmp / "token.key", tmp / "token.pub"
        sh(f"openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {keys[0]}")
        sh(f"openssl pkey -in {keys[0]} -pubout -out {keys[1]}")
        url = f"https://localhost:{upload}"
        (tmp / "routes.toml").write_text(f'[[route]]\nnamespace = "default"\npvc = "{PVC}"\nurl = "{url}"\n')
        proxy = [programs / "examples/uploadproxy-dev", "serve", "--static", tmp / "routes.toml", "--public-key", keys[1]]
        proxy = start([*proxy, "--listen", f"127.0.0.1:{front}", "--self-signed", certs, "--quiet"], front)
        token = [programs / "examples/uploadproxy-dev", "token", "--key", keys[0], "--pvc", PVC, "--namespace", "default"]
        token = subprocess.run(token, check=True, capture_output=True, text=True).stdout.strip()
        wire = Wire(front, is_slow)
        port = wire.port if is_slow else front
        try:
            warm(image)
            begin = time.monotonic()
            way(programs, image, certs, f"https://localhost:{port}", token, tmp)
            wall = time.monotonic() - begin
        finally:
            for process in proxy, server:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait()
        sh(f"cmp {image} {tmp}/target/disk.img")
        return wall, wire.sent


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--programs", type=Path, required=True, help="folder of our programs, with examples/uploadproxy-dev below it")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    return parser.parse_args()


def print_table(costs: dict[tuple, list[tuple[float, int]]]) -> None:
    print("| raw disk of 4 GiB | kubectl-cdi | curl | ours to it |\n| --- | --- | --- | --- |")
    for is_slow, what in (False, "loopback"), (True, "200 Mbit/s, 20 ms"):
        us, them = ([statistics.median(of) for of in zip(*costs[is_slow, way])] for way in ("ours", "curl"))
        cells = [f"{wall:.1f} s" + (f", {sent / 1e6:.0f} MB" if is_slow else "") for wall, sent in (us, them)]
        sent = f", {us[1] / them[1]:.2f}× bytes" if is_slow else ""
        print(f"| {what} | {cells[0]} | {cells[1]} | **{us[0] / them[0]:.2f}×** time{sent} |")


if __name__ == "__main__":
    main()
