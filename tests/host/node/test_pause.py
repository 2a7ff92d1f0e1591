"""The sandbox program as a process: other processes of its user cannot trace it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from wherry import pause

NOBODY = 65534
SEIZE = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "done = libc.ptrace(0x4206, int(sys.argv[1]), None, None)\n"
    "print('traced' if done == 0 else os.strerror(ctypes.get_errno()))\n"
)


def traced(pid: int) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SEIZE, str(pid)], user=NOBODY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_process_of_the_same_user_cannot_trace_the_sandboxs(tmp_path: Path) -> None:
    program = Path("/tmp") / f"{tmp_path.name}-pause"  # where that user gets to
    program.write_bytes(pause.program())
    program.chmod(0o755)
    sandbox, other = (subprocess.Popen(argv, user=NOBODY) for argv in ([str(program)], ["sleep", "60"]))
    try:
        deadline = time.monotonic() + 30
        while Path(f"/proc/{sandbox.pid}/wchan").read_text() == "0" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert traced(other.pid) == "traced"
        assert traced(sandbox.pid) == "Operation not permitted"
        assert sandbox.poll() is None
    finally:
        for each in (sandbox, other):
            each.kill()
            each.wait()
        program.unlink()
