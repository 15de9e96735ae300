"""How CDI's own cdi-uploadserver and cdi-cloner are started, for ci/versions and benches/side-by-side/clone_upstream.py.

Both get a folder of upstream's programs, a folder of certificates as our server makes them, and the size of the disk.
"""

import os
import subprocess
from pathlib import Path

# Upstream's server always puts files here.
DATA = Path("/data")
# Upstream's server offers only the cipher suites that it is given (docs/develop/contract.md).
CIPHERS = "TLS_AES_128_GCM_SHA256,ECDHE-RSA-AES128-GCM-SHA256,ECDHE-ECDSA-AES128-GCM-SHA256"


def start_server(programs: Path, certificates: Path, size: int, port: int, target: Path, log) -> subprocess.Popen:
    """Starts an upload server as CDI's controllers do. Its files are in `target`, until DATA is unmounted."""
    subprocess.run(["mount", "--bind", target, DATA], check=True)
    variables = {
        "LISTEN_ADDRESS": "127.0.0.1",
        "LISTEN_PORT": str(port),
        "DESTINATION": str(target / "disk.img"),
        "TLS_KEY_FILE": str(certificates / "server.key"),
        "TLS_CERT_FILE": str(certificates / "server.crt"),
        "CLIENT_CERT_FILE": str(certificates / "ca.crt"),
        "CLIENT_NAME": client_of(certificates),
        "FILESYSTEM_OVERHEAD": "0.0",
        "PREALLOCATION": "false",
        "UPLOAD_IMAGE_SIZE": str(size),
        "TLS_CIPHERS": CIPHERS,
        "TLS_MIN_VERSION": "VersionTLS12",
    }
    command = [programs / "cdi-uploadserver", "-alsologtostderr"]
    return subprocess.Popen(command, env=os.environ | variables, cwd=target, stderr=log)


def start_cloner(programs: Path, certificates: Path, size: int, url: str, source: Path, **output) -> subprocess.Popen:
    """Clones a device or a directory."""
    kind = "filesystem-clone" if source.is_dir() else "blockdevice-clone"
    command = [programs / "cdi-cloner", "-content-type", kind, "-mount", source, "-upload-bytes", str(size)]
    variables = {
        "OWNER_UID": "clone",
        "UPLOAD_URL": url,
        "CLIENT_KEY": (certificates / "client.key").read_text(),
        "CLIENT_CERT": (certificates / "client.crt").read_text(),
        "SERVER_CA_CERT": (certificates / "ca.crt").read_text(),
        "PREALLOCATION": "false",
    }
    return subprocess.Popen(command, env=os.environ | variables, **output)


def client_of(certificates: Path) -> str:
    """The name in the client's certificate."""
    subject = ["openssl", "x509", "-in", certificates / "client.crt", "-noout", "-subject", "-nameopt", "multiline"]
    lines = subprocess.run(subject, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return next(line.split("=")[1].strip() for line in lines if "commonName" in line)
