"""Options that all scripts have, and our programs, which are built as in a release unless an option names their folder."""

import argparse
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def arguments(description: str, *packages: str, runs: int = 3, more: dict[str, dict] | None = None) -> argparse.Namespace:
    """Parses the options and builds the programs of these packages. `more` maps names of further options to settings."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=existing, default="/var/tmp/cdi-side-by-side", help="images are kept here")
    parser.add_argument("--programs", type=Path, help="folder of our programs, if they are not to be built")
    parser.add_argument("--runs", type=int, default=runs, help=f"runs of which the median counts [{runs}]")
    for name, settings in (more or {}).items():
        parser.add_argument(name, **settings)
    options = parser.parse_args()
    options.programs = options.programs.resolve() if options.programs else built(*packages)
    return options


def existing(folder: str) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder).resolve()


def built(*packages: str) -> Path:
    """Compiles the programs of these packages, and the proxy without a cluster, and returns the folder."""
    chosen = [word for package in packages for word in ("--package", package)]
    example = ["--bins", "--example", "uploadproxy-dev"] if "uploadproxy" in packages else []
    subprocess.run(["cargo", "build", "--profile", "dist", "--quiet", *chosen, *example], cwd=ROOT, check=True)
    return ROOT / "target" / machine() / "dist"


def machine() -> str:
    """Returns the target of this machine's compiler."""
    return subprocess.check_output(["rustc", "--print", "host-tuple"], text=True).strip()
