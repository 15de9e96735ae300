"""A network of this process and those that it starts: a loopback, with a congestion control that is the same everywhere."""

import ctypes
import os
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000
"""unshare(2): leave the network for an empty one."""

CONGESTION = "reno"
"""What every Linux has and lets a container choose; on a loopback it costs what cubic costs. bbr sets a timer for each packet of a
sender. On one machine the interrupts of curl's are charged to whoever runs then, 30,000 for 4 GiB, and each costs a virtual machine
some 20 µs."""


def enter(congestion: str) -> None:
    """To be called as root, before anything listens; nothing outside is reached from here on."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise SystemExit(f"no network of its own: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(congestion)
