"""Copies of another process's sockets, by the numbers of its descriptors (pidfd_getfd(2), Linux 5.6).

The kernel counts these for no user, unlike sockets in messages (socket_channel.py). It allows them for a process of the same
user without further capabilities; with Yama (kernel.yama.ptrace_scope 1) only for a child, and with 2 or more for none.
"""

from __future__ import annotations

import ctypes
import os
import socket

_PIDFD_GETFD = 438
"""The system call, on all architectures alike; Python has no function for it."""


class ProcessSockets:
    """The sockets of a process; OSError if the kernel has no such calls or the process has ended."""

    def __init__(self, pid: int) -> None:
        self._process = os.pidfd_open(pid)
        self._call = ctypes.CDLL(None, use_errno=True).syscall

    def copy(self, descriptor: int) -> socket.socket:
        """Return a copy of a socket; OSError if the kernel refuses it, or the descriptor is not one."""
        values = (_PIDFD_GETFD, self._process, descriptor, 0)
        number = self._call(*(ctypes.c_long(value) for value in values))
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        try:
            return socket.socket(fileno=number)
        except OSError:
            os.close(number)
            raise

    def close(self) -> None:
        """Forget the process."""
        os.close(self._process)
