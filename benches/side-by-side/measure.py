"""What one command costs: the whole tree of its processes, from the start to the end of its last write."""

import ctypes
import os
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphaned descendants become our children, so that their CPU time is counted too."""

POLL_SECONDS = 0.05
"""Between two looks at the memory of a tree of processes: a hundredth of most runs, and cheap."""


@dataclass
class Cost:
    """Of one run. Bytes, seconds."""

    wall: float
    cpu: float
    rss: int
    written: int
    temporary: int

    def as_dict(self) -> dict:
        return asdict(self)


def become_subreaper() -> None:
    """Once, before the first `run`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: str, temporary: Path) -> Cost:
    """Runs `command`, a line of bash that must succeed. `temporary` is the folder for its temporary files."""
    written = written_bytes()
    start = time.monotonic()
    shell = subprocess.Popen(["bash", "-o", "pipefail", "-ec", command], stdin=subprocess.DEVNULL)
    memory = PeakMemory(shell.pid)
    _, status, usage = os.wait4(shell.pid, 0)
    wall = time.monotonic() - start
    peak = memory.stop()
    cpu = usage.ru_utime + usage.ru_stime
    for orphan in reap_orphans(shell.pid):
        cpu += orphan.ru_utime + orphan.ru_stime
    # Its bookkeeping must not wait for a process that is gone.
    shell.returncode = os.waitstatus_to_exitcode(status)
    if shell.returncode != 0:
        raise SystemExit(f"exit status {shell.returncode} of: {command}")
    return Cost(
        wall=wall,
        cpu=cpu,
        rss=peak,
        written=written_bytes() - written,
        temporary=sum(file.stat().st_blocks * 512 for file in temporary.iterdir()),
    )


def reap_orphans(group: int):
    """What ended without its parent noticing. Servers that we keep running are not among them."""
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield usage


def written_bytes() -> int:
    """Bytes that our ended children caused to be written: the kernel adds theirs to ours when we wait for them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"])


class PeakMemory:
    """Watches the memory of a process and its descendants: the sum of the most that each of them had resident."""

    def __init__(self, pid: int):
        self.pid = pid
        self.peaks: dict[int, int] = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self) -> None:
        while not self.done.wait(POLL_SECONDS):
            self.look_at(self.pid)

    def look_at(self, pid: int) -> None:
        """The kernel remembers the peak; what grows after the last look is missed, which is a twentieth of a second."""
        try:
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return
        # The shell is the same for everybody, and a child that is one still has not become its program.
        if status["Name"] != "bash" and "VmHWM" in status:
            self.peaks[pid] = int(status["VmHWM"].split()[0]) << 10
        for child in children:
            self.look_at(int(child))

    def stop(self) -> int:
        self.done.set()
        self.thread.join()
        return sum(self.peaks.values())
