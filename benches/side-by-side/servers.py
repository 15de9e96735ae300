"""Servers on loopback: starting and ending them, and nginx, which serves a folder."""

import os
import signal
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command: list, port: int, address: str = "127.0.0.1", **options) -> subprocess.Popen:
    """Starts a server, and waits until it listens. Its messages are discarded, unless `options` are others."""
    serving = subprocess.Popen([str(word) for word in command], **{"stderr": subprocess.DEVNULL} | options)
    wait_until_it_listens(serving, port, address)
    return serving


def wait_until_it_listens(serving: subprocess.Popen, port: int, address: str = "127.0.0.1") -> None:
    for _ in range(400):
        try:
            return socket.create_connection((address, port), timeout=1).close()
        except OSError:
            if serving.poll() is not None:
                break
            time.sleep(0.02)
    raise SystemExit(f"{serving.args[0]} does not listen")


def end(serving: subprocess.Popen) -> tuple[float, int]:
    """Ends a server with its workers, unless it has ended by itself. Returns its CPU seconds, and the peak of its memory."""
    # The peak in getrusage includes the memory of this process, from which the server was forked. Popen.wait would lose the
    # resource usage of a process that has ended.
    memory = memory_of(serving, "VmHWM")
    os.kill(serving.pid, signal.SIGTERM)
    return wait(serving)[0], memory


def wait(process: subprocess.Popen) -> tuple[float, int]:
    """Waits until a process ends. Returns its CPU seconds, and the peak of its memory or that of its largest child."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


def memory_of(serving: subprocess.Popen, field: str) -> int:
    """Returns the bytes of a server with its workers."""
    children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
    files = [Path(f"/proc/{process}/status").read_text() for process in [str(serving.pid), *children]]
    lines = [line for file in files for line in file.splitlines() if line.startswith(field)]
    return sum(int(line.split()[1]) << 10 for line in lines)


class Server:
    """A server that runs while its block does."""

    def __init__(self, folder: Path, limit: int | None = None, address: str = "127.0.0.1", prefix: tuple = ()):
        """`limit` is the rate of each connection in bytes per second. `prefix` is a command that starts another one."""
        self.prefix, self.port = prefix, free_port()
        self.values = {"folder": folder, "address": address, "port": self.port, "limit": f"limit_rate {limit};" if limit else ""}
        self.url = f"http://{address}:{self.port}"

    def __enter__(self) -> "Server":
        self.work = tempfile.TemporaryDirectory()
        file = Path(self.work.name, "nginx.conf")
        file.write_text(CONFIGURATION.format(work=self.work.name, **self.values))
        self.process = start([*self.prefix, "nginx", "-c", file, "-e", "stderr"], self.port, self.values["address"], stderr=None)
        return self

    def __exit__(self, *_) -> None:
        end(self.process)
        self.work.cleanup()
