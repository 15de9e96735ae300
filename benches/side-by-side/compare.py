"""Runs every case in alternating rounds and writes the measurements as JSON."""

import datetime
import functools
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import measure
import ways
from images import DISK_BYTES, RAW, attached, prepare, warm
from options import ROOT, arguments
from servers import Server

MORE = {
    "--output": {"type": Path, "default": ROOT / "target/side-by-side/result.json"},
    "--only": {"help": "cases whose name or target contains this, such as 'raw.gz' or 'device'"},
    "--verify": {"action": "store_true", "help": "compare what each way made with the disk"},
}


def main() -> None:
    options = arguments(__doc__, "importer", runs=5, more=MORE)
    prepare(options.folder)
    described = machine()
    trials = {
        (f"{case.target}: {case.name}", way.name): (case, way)
        for case in ways.FILES + ways.DEVICES
        for way in [case.us, *case.peers, *case.limits]
        if (options.only or "") in f"{case.target}: {case.name}"
    }
    measure.become_subreaper()
    with Server(options.folder) as server, tempfile.TemporaryDirectory(dir=options.folder) as work:
        bench = functools.partial(measured, options, Path(work), server.url)
        costs = measure.rounds(options.runs, trials, lambda *names: bench(*trials[names]))
    cases: dict[str, dict[str, list[dict]]] = {}
    for (case, way), of_way in costs.items():
        cases.setdefault(case, {})[way] = [asdict(cost) for cost in of_way]
    result = {"machine": described, "pairs": options.runs, "cases": cases}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {options.output}")


def measured(options, work: Path, url: str, case: ways.Case, way: ways.Way) -> measure.Cost:
    image = options.folder / case.image
    temporary = work / "temporary"
    temporary.mkdir()
    with target(work / "target", case.target) as out:
        words = {"us": options.programs / "cdi-importer", "url": f"{url}/{case.image}", "file": image, "tmp": temporary}
        warm(image)
        # Writes back dirty pages of earlier runs, so that this run does not pay for them.
        os.sync()
        cost = measure.run(way.command.format(out=out, **words).replace("$uri", '"$uri"'), temporary)
        if options.verify and not way.name.startswith("limit"):
            subprocess.run(["cmp", options.folder / RAW, out], check=True)
    shutil.rmtree(temporary)
    return cost


@contextmanager
def target(file: Path, kind: str) -> Iterator[Path]:
    """Yields a file that does not exist yet, or a loop device over an empty file."""
    if kind == "file":
        yield file
    else:
        with open(file, "xb") as backing:
            backing.truncate(DISK_BYTES)
        with attached(file, "--direct-io=on") as device:
            yield device
    file.unlink(missing_ok=True)


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
