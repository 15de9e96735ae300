"""Builds our programs as they are in a release."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def built(*packages: str, example: str = "") -> Path:
    """Compiles the programs of these packages, or an example, and returns the folder."""
    chosen = [word for package in packages for word in ("--package", package)]
    if example:
        chosen += ["--example", example]
    subprocess.run(["cargo", "build", "--profile", "dist", "--quiet", *chosen], cwd=ROOT, check=True)
    target = subprocess.run(["rustc", "--print", "host-tuple"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return ROOT / "target" / target / "dist"
