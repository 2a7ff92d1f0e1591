"""An agent that starts while the disk is full: pods run on, and evictions free the disk."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_node import container, create


async def test_an_agent_starts_while_the_disk_is_full(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(node, "running", container("cat"))
    await node.ready("running")
    await node.stop()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        for place, name in ((os, "fsync"), (tempfile, "mkstemp"), (Path, "write_text"), (Path, "write_bytes")):
            patched.setattr(place, name, full)
        await node.start()
        await node.delete("running")
        await node.gone("running")
