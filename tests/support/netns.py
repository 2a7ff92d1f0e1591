"""Network namespaces of a test's own: made, wired, entered, and removed with all that runs in them.

A namespace is entered by one thread alone (`inside`), with its own event loop: the sockets it opens, the processes it
starts and the /proc/sys/net it writes are the namespace's, while the rest of the test process stays where it is.
"""

import asyncio
import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def command(*argv: str, check: bool = True, timeout: float = 60, input: str = "") -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, input=input, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Namespace:
    """One network namespace by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path("/var/run/netns") / name
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, *argv: str, check: bool = True, timeout: float = 60, input: str = "") -> str:
        """Run a command inside and return what it printed."""
        return command("nsenter", f"--net={self.path}", *argv, check=check, timeout=timeout, input=input)

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start a process inside; it is killed when the namespace goes."""
        process = subprocess.Popen(
            ["nsenter", f"--net={self.path}", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def inside(self, main: Callable[[], Coroutine[Any, Any, T]], timeout: float = 180) -> T:
        """Run a coroutine to its end in a thread that lives in the namespace, and return its result."""
        result: list[T] = []
        failure: list[BaseException] = []

        def enter() -> None:
            try:
                handle = os.open(self.path, os.O_RDONLY)
                try:
                    if _libc.setns(handle, _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), f"setns {self.path}")
                finally:
                    os.close(handle)
                result.append(asyncio.run(asyncio.wait_for(main(), timeout)))
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=enter, name=f"in {self.name}")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return result[0]

    def delete(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        command("ip", "netns", "del", self.name, check=False)


@contextlib.contextmanager
def namespaces(*names: str) -> Iterator[list[Namespace]]:
    """Make namespaces, each with its loopback up, and delete them at the end."""
    made: list[Namespace] = []
    try:
        for name in names:
            command("ip", "netns", "add", name)
            made.append(Namespace(name))
            made[-1].run("ip", "link", "set", "lo", "up")
        yield made
    finally:
        for namespace in made:
            namespace.delete()


def wire(left: Namespace, left_device: str, right: Namespace, right_device: str) -> None:
    """Join two namespaces with a veth pair; both ends are up, without addresses."""
    left.run("ip", "link", "add", left_device, "type", "veth", "peer", "name", right_device, "netns", str(right.path))
    left.run("ip", "link", "set", left_device, "up")
    right.run("ip", "link", "set", right_device, "up")
