"""Gives this process and its children a private loopback network with a fixed congestion control."""

import ctypes
import os
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000
"""unshare(2): moves to a new, empty network."""

CONGESTION = "reno"
"""A congestion control that every Linux has and allows in containers. On a loopback it costs as much
as cubic. bbr sets a timer for each packet of a sender. On one machine curl's timers caused 30,000
interrupts for 4 GiB, which are charged to the running process; each costs a virtual machine some 20 µs."""


def enter(congestion: str) -> None:
    """Enters the network. Needs root and must be called before anything listens. The outside is then unreachable."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise SystemExit(f"no network of its own: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(congestion)
