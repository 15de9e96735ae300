"""Runs nginx on loopback, which serves a folder."""

import socket
import subprocess
import tempfile
import time
from pathlib import Path

CONFIGURATION = """
daemon off;
master_process off;
pid {work}/pid;
error_log stderr warn;
events {{ worker_connections 64; }}
http {{
    access_log off;
    sendfile on;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{ listen {address}:{port}; root {folder}; {limit} }}
}}
"""


class Server:
    """A server that runs while its block does."""

    def __init__(self, folder: Path, limit: int | None = None, address: str = "127.0.0.1", prefix: tuple = ()):
        """`limit` is the rate of each connection in bytes per second. `prefix` is a command that starts another one."""
        self.folder = folder
        self.address = address
        self.prefix = prefix
        self.limit = f"limit_rate {limit};" if limit else ""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://{address}:{self.port}"

    def __enter__(self) -> "Server":
        self.work = tempfile.TemporaryDirectory()
        file = Path(self.work.name, "nginx.conf")
        values = {"work": self.work.name, "port": self.port, "folder": self.folder, "limit": self.limit, "address": self.address}
        file.write_text(CONFIGURATION.format(**values))
        self.process = subprocess.Popen([*self.prefix, "nginx", "-c", file, "-e", "stderr"])
        for _ in range(100):
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit("nginx does not listen")

    def __exit__(self, *_) -> None:
        self.process.terminate()
        self.process.wait()
        self.work.cleanup()
