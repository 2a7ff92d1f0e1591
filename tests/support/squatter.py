"""A program of an account without rights that listens on the private ports of a node's gateway, and forges answers."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.support.netns import Namespace

USER = 65534
FORGED = "forged"
_PROGRAM = r"""
import os, select, socket, sys, time
os.setgid(65534); os.setuid(65534)
first, last, patient = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "patient"
held, wanted = [], list(range(first, last + 1))
def bind_all():
    for port in list(wanted):
        found = socket.socket()
        try:
            found.bind(("0.0.0.0", port)); found.listen(16)
        except OSError:
            found.close(); continue
        wanted.remove(port); held.append(found)
        if patient: print("took", port, flush=True)
bind_all()
print("ready", len(held), flush=True)
while True:
    if patient and wanted: bind_all()
    for each in select.select(held, [], [], 0 if patient and wanted else None)[0]:
        connection, _ = each.accept(); connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nforged"); connection.close()
"""


@contextlib.contextmanager
def squatter(node: Namespace, first: int = 61000, last: int = 61015, *, patient: bool = False) -> Iterator[list[str]]:
    """Listen on ports in a node's namespace; yields the lines that the program writes, complete after the block.

    A patient program tries again and again to get the ports that it does not have.
    """
    argv = [
        "nsenter",
        f"--net={node.path}",
        sys.executable,
        "-I",
        "-c",
        _PROGRAM,
        str(first),
        str(last),
        "patient" if patient else "once",
    ]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert program.stdout is not None
    lines: list[str] = []
    try:
        for line in program.stdout:
            lines.append(line.strip())
            if line.startswith("ready"):
                break
        yield lines
    finally:
        program.kill()
        lines += program.stdout.read().split("\n")
        program.wait()
