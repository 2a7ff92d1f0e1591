"""Features of the container runtime on PATH, read from its programs: selects the tests that can run, with reasons.

The tests start the first `containerd` and `runc` of PATH, whatever they are (CONTRIBUTING.md says how to try others).
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest


def version(program: str) -> tuple[int, int]:
    """Return a program's major and minor version; (0, 0) where it is not installed."""
    if shutil.which(program) is None:
        return 0, 0
    message = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d+", message)
    assert found, f"{program} --version says {message!r}"
    return int(found[1]), int(found[2])


CONTAINERD, RUNC = version("containerd"), version("runc")


def needs(what: str, containerd: tuple[int, int], runc: tuple[int, int] = (1, 0)) -> pytest.MarkDecorator:
    """Skip a test where the runtime is older than what it shows."""
    wanted = f"containerd {_text(containerd)}" + (f" and runc {_text(runc)}" if runc > (1, 0) else "")
    here = f"containerd {_text(CONTAINERD)} and runc {_text(RUNC)}"
    able = containerd <= CONTAINERD and runc <= RUNC
    return pytest.mark.skipif(not able, reason=f"{what} need {wanted}; here are {here}")


def lacks(what: str, containerd: tuple[int, int], runc: tuple[int, int] = (1, 0)) -> pytest.MarkDecorator:
    """Skip a test of what happens on an older runtime where the runtime is not that old."""
    able = containerd <= CONTAINERD and runc <= RUNC
    return pytest.mark.skipif(able, reason=f"containerd {_text(CONTAINERD)} and runc {_text(RUNC)} have {what}")


USER_NAMESPACES = "user namespaces", (2, 0), (1, 2)
IMAGE_VOLUMES = "image volumes", (2, 1)
FOLDERS_OF_IMAGES = "image volumes with a subPath", (2, 2)
RECURSIVE_READ_ONLY = "recursive read-only mounts", (2, 0), (1, 1)
GROUPS_POLICY = "strict supplemental groups", (2, 0)


def _text(found: tuple[int, int]) -> str:
    return f"{found[0]}.{found[1]}"
