"""Runs every case in alternating rounds and writes the measurements as JSON."""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import measure
import ways
from build import built
from images import DISK_BYTES, RAW, prepare, warm
from server import Server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def main() -> None:
    options = arguments()
    folder = options.folder.resolve()
    prepare(folder)
    importer = options.importer or built("importer") / "cdi-importer"
    described = machine()
    cases = [case for case in ways.FILES + ways.DEVICES if selected(case, options.only)]
    measure.become_subreaper()
    with Server(folder) as server, tempfile.TemporaryDirectory(dir=folder) as work:
        bench = Bench(folder, Path(work), server.url, importer, options.verify)
        for pair in range(options.pairs):
            for case in cases:
                bench.round(case, pair)
    result = {"machine": described, "pairs": options.pairs, "cases": bench.results}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {options.output}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cdi-side-by-side"), help="images are kept here")
    parser.add_argument("--output", type=Path, default=ROOT / "target/side-by-side/result.json")
    parser.add_argument("--pairs", type=int, default=5, help="rounds [5]")
    parser.add_argument("--only", help="cases whose name or target contains this, such as 'raw.gz' or 'device'")
    parser.add_argument("--importer", type=Path, help="our binary, if it is not to be built")
    parser.add_argument("--verify", action="store_true", help="compare what each way made with the disk")
    return parser.parse_args()


def selected(case: ways.Case, wanted: str | None) -> bool:
    return wanted is None or wanted in f"{case.target}: {case.name}"


class Bench:
    """One run of the comparison."""

    def __init__(self, folder: Path, work: Path, url: str, importer: Path, verify: bool):
        self.folder, self.work, self.url, self.importer, self.verify = folder, work, url, importer, verify
        self.results: dict[str, dict[str, list[dict]]] = {}

    def round(self, case: ways.Case, pair: int) -> None:
        """Runs our importer and each peer once, in reverse order in every other round."""
        order = [case.us, *case.peers, *case.limits]
        results = self.results.setdefault(f"{case.target}: {case.name}", {})
        for way in reversed(order) if pair % 2 else order:
            cost = self.measure(case, way)
            results.setdefault(way.name, []).append(cost.as_dict())
            print(
                f"{pair + 1} {case.target:6} {case.name:17} {way.name:38} {cost.wall:7.2f} s {cost.cpu:7.2f} CPU s "
                f"{cost.rss / 2**20:6.0f} MiB {cost.written / 1e6:7.0f} MB {cost.temporary / 1e6:6.0f} MB temporary",
                flush=True,
            )

    def measure(self, case: ways.Case, way: ways.Way) -> measure.Cost:
        temporary = self.work / "temporary"
        temporary.mkdir()
        with Target(self.work / "target", case.target) as out:
            command = way.command.format(
                us=self.importer,
                url=f"{self.url}/{case.image}",
                file=self.folder / case.image,
                out=out,
                tmp=temporary,
            ).replace("$uri", '"$uri"')
            warm(self.folder / case.image)
            # Writes back dirty pages of earlier runs, so that this run does not pay for them.
            os.sync()
            cost = measure.run(command, temporary)
            if self.verify and not way.name.startswith("limit"):
                subprocess.run(["cmp", self.folder / RAW, out], check=True)
        shutil.rmtree(temporary)
        return cost


class Target:
    """Yields a file that does not exist yet, or a loop device over an empty file."""

    def __init__(self, file: Path, kind: str):
        self.file, self.kind, self.device = file, kind, None

    def __enter__(self) -> Path:
        if self.kind == "file":
            return self.file
        with open(self.file, "xb") as file:
            file.truncate(DISK_BYTES)
        losetup = ["losetup", "--find", "--show", "--direct-io=on", self.file]
        self.device = subprocess.run(losetup, check=True, capture_output=True, text=True).stdout.strip()
        return Path(self.device)

    def __exit__(self, *_) -> None:
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], check=True)
        self.file.unlink(missing_ok=True)


def machine() -> dict:
    """Returns the facts about the machine on which the figures depend."""
    cpu = next(line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release(),
        "commit": commit.stdout.strip(),
    }


if __name__ == "__main__":
    main()
