"""The IDs that the node's administrator gives to pods, in the files and with the program that others read them by."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("getsubids"), reason="getsubids is missing (Debian: uidmap)")

ASK = """
import asyncio
from agent.podspec.subordinate_ids import SubordinateIdsError, usable
try:
    found = asyncio.run(usable(65536, 110))
    print(found.first, found.count)
except SubordinateIdsError as error:
    print(error)
"""


def requested(folder: Path, users: str, subuid: str, subgid: str) -> str:
    """Ask on a machine whose /etc has these users and IDs: laid over the real one for the asking process alone."""
    (folder / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{users}")
    (folder / "subuid").write_text(subuid)
    (folder / "subgid").write_text(subgid)
    script = f'mount -t overlay -o lowerdir={folder}:/etc etc /etc && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable, ASK]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


KUBELET = "kubelet:x:990:990::/:/usr/sbin/nologin\n"
OTHERS = "me:231072:65536\n"


@pytest.mark.parametrize(
    ("users", "subuid", "subgid", "answer"),
    [
        ("", OTHERS, OTHERS, "65536 4294901760"),
        (KUBELET, f"{OTHERS}kubelet:1048576:7208960\n", f"kubelet:1048576:7208960\n{OTHERS}", "1048576 7208960"),
        (
            KUBELET,
            "kubelet:1048576:7208960\n",
            "kubelet:1114112:7208960\n",
            'kubelet mappings: mismatched subuids and subgids for user "kubelet"',
        ),
        (
            KUBELET,
            "kubelet:65536:655360\n",
            "kubelet:65536:655360\n",
            "kubelet user assigned IDs are not enough to support 110 pods",
        ),
    ],
    ids=["no such user", "its own", "two that differ", "too few"],
)
def test_pods_get_the_ids_of_the_user_kubelet(
    tmp_path: Path, users: str, subuid: str, subgid: str, answer: str
) -> None:
    assert requested(tmp_path, users, subuid, subgid) == answer
