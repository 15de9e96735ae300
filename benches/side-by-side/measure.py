"""Measures one command with all its descendants, from its start to the end of its last write, and rounds of such measurements."""

import ctypes
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from images import DISK_BYTES, RAW, sh

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): makes orphaned descendants our children, so that their CPU time is counted too."""

POLL_SECONDS = 0.05
"""Interval of the memory checks: a hundredth of most runs, and cheap."""


@dataclass
class Cost:
    """Costs of one run in bytes and seconds."""

    wall: float
    cpu: float = 0
    rss: int = 0
    written: int = 0
    temporary: int = 0


def rounds(runs: int, trials: Iterable[tuple], measured: Callable) -> dict[tuple, list]:
    """Measures all trials, in reverse order in every other round. Returns the costs of each trial."""
    trials = list(trials)
    costs = {trial: [] for trial in trials}
    for number in range(runs):
        for trial in reversed(trials) if number % 2 else trials:
            cost = measured(*trial)
            costs[trial].append(cost)
            print(f"{', '.join(map(str, trial))}: {cost}", flush=True)
    return costs


def medians(costs: list, *fields: str) -> list[float]:
    return [statistics.median(getattr(cost, field) for cost in costs) for field in fields]


def ratios(ours: list, theirs: list, *fields: str) -> list[float]:
    """Returns the medians of the rounds' ratios: temporary slowness of the machine affects both sides of a round."""
    pairs = list(zip(ours, theirs))
    return [statistics.median(getattr(a, field) / max(getattr(b, field), 0.01) for a, b in pairs) for field in fields]


def become_subreaper() -> None:
    """Must be called once, before the first `run`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


EQUAL = f"cmp -n {DISK_BYTES} {{raw}} {{out}}"
"""Compares the result with the disk."""


def whole(command: str, folder: Path, place: Path | None = None, check: str = EQUAL, name: str = "disk.img") -> Cost:
    """Runs `command` once, which writes to `{out}` and may use `{tmp}`, both in `place`. Then `check` must succeed."""
    with tempfile.TemporaryDirectory(dir=place or folder.parent, prefix="cdi-whole-") as work:
        tmp, out = Path(work, "tmp"), Path(work, name)
        tmp.mkdir()
        # Writes back dirty pages of earlier runs, so that this run does not pay for them.
        os.sync()
        cost = run(command.format(tmp=tmp, out=out), tmp)
        sh(check.format(raw=folder / RAW, out=out, tmp=tmp))
        return cost


def run(command: str, temporary: Path) -> Cost:
    """Runs `command`, a line of bash that must succeed. `temporary` is the folder for its temporary files."""
    written = written_bytes()
    start = time.monotonic()
    shell = subprocess.Popen(["bash", "-o", "pipefail", "-ec", command], stdin=subprocess.DEVNULL)
    with Watch(shell.pid) as watched:
        _, status, usage = os.wait4(shell.pid, 0)
        wall = time.monotonic() - start
    cpu = usage.ru_utime + usage.ru_stime
    for orphan in reap_orphans(shell.pid):
        cpu += orphan.ru_utime + orphan.ru_stime
    # The bookkeeping below must not wait for a process that has ended.
    shell.returncode = os.waitstatus_to_exitcode(status)
    if shell.returncode != 0:
        raise SystemExit(f"exit status {shell.returncode} of: {command}")
    return Cost(
        wall=wall,
        cpu=cpu,
        rss=watched.rss,
        written=written_bytes() - written,
        temporary=sum(file.stat().st_blocks * 512 for file in temporary.iterdir()),
    )


def reap_orphans(group: int):
    """Reaps orphaned descendants that have ended, except our own servers, and yields their resource usage."""
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield usage


def written_bytes() -> int:
    """Returns the bytes written by our ended children, which the kernel adds to ours when we wait for them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"])


class Watch:
    """Watches a process and its descendants, or those with this name: sums of their resident peaks, and of their CPU time."""

    def __init__(self, pid: int, name: str = "", interval: float = POLL_SECONDS):
        self.pid, self.name, self.interval = pid, name, interval
        self.peaks: dict[int, int] = {}
        self.seconds: dict[int, float] = {}

    def __enter__(self) -> "Watch":
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()

    @property
    def rss(self) -> int:
        return sum(self.peaks.values())

    @property
    def cpu(self) -> float:
        return sum(self.seconds.values())

    def watch(self) -> None:
        while not self.done.wait(self.interval):
            self.look_at(self.pid)

    def look_at(self, pid: int) -> None:
        """Reads what the kernel has recorded. Growth after the last check is missed."""
        try:
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            threads = Path(f"/proc/{pid}/task").iterdir()
            children = [child for thread in threads for child in (thread / "children").read_text().split()]
        except OSError:
            return
        # The shell is the same for all candidates, and a child that is still a shell has not
        # executed its program yet.
        if status["Name"] != "bash" and self.name in ("", status["Name"]) and "VmHWM" in status:
            self.peaks[pid] = int(status["VmHWM"].split()[0]) << 10
            self.seconds[pid] = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        for child in children:
            self.look_at(int(child))
