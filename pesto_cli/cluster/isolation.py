"""Isolate the client and its workers in a network namespace.

TensorFlow's server listens on every network interface, without authentication, and runs any graph
that it receives. A new network namespace has only a loopback interface of its own, so that no
process outside can reach the servers.
"""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from pesto_cli.errors import EnvironmentFailedError

# <linux/sched.h>, <linux/sockios.h>, <linux/if.h>
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ = struct.Struct("16sh14x")


def leave_network() -> None:
    """Move this process, which must have one thread, into a new network namespace with a loopback.

    A privileged process keeps its user. Any other process also gets a new user namespace, in which
    it has the same user id.

    Raises:
        EnvironmentFailedError: the system does not allow it.
    """
    try:
        if not _unshare(CLONE_NEWNET):
            user, group = os.getuid(), os.getgid()
            if not _unshare(CLONE_NEWUSER | CLONE_NEWNET):
                raise PermissionError(os.strerror(ctypes.get_errno()))
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _bring_up_loopback()
    except OSError as error:
        raise EnvironmentFailedError(
            "local-workers: this system does not let a user create a network namespace "
            f"({error.strerror or error}), which isolates the workers from others. Without one, "
            "TensorFlow's server listens on every network interface and runs as you whatever "
            "anyone sends to it. If nobody else can reach the ports of this machine, give pesto "
            "profile, run or comm the option --open-ports; otherwise allow namespaces (sysctl "
            "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)."
        ) from None


def _unshare(flags: int) -> bool:
    return int(ctypes.CDLL(None, use_errno=True).unshare(flags)) == 0


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = _IFREQ.pack(b"lo", 0)
        _, flags = _IFREQ.unpack(fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | IFF_UP))
