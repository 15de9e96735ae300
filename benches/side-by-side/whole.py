"""Shared code of the scripts that measure whole imports: options, our binary, and one run."""

import argparse
import tempfile
from pathlib import Path

from build import built
from images import DISK_BYTES, sh
from measure import Cost, run


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--importer", type=Path, help="our binary, if it is not to be built")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median counts [3]")
    return parser.parse_args()


def importer(options: argparse.Namespace) -> Path:
    """Returns the named binary, or builds a release."""
    if options.importer:
        return options.importer.resolve()
    return built("importer") / "cdi-importer"


def measure(command: str, folder: Path, target: Path | None = None) -> Cost:
    """Runs `command` once, which writes to `{out}` and may use `{tmp}`, both in `target`, and compares the disk with the raw one."""
    with tempfile.TemporaryDirectory(dir=target or folder.parent, prefix="cdi-whole-") as name:
        tmp, out = Path(name, "tmp"), Path(name, "disk.img")
        tmp.mkdir()
        cost = run(command.format(tmp=tmp, out=out), tmp)
        sh(f"cmp -n {DISK_BYTES} {folder}/disk.raw {out}")
        return cost
