"""Commands whose output comes in pieces."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing

import pytest

from kube.process import CommandError, pieces


async def test_output_and_errors_come_in_pieces() -> None:
    script = "head -c 1000000 /dev/zero; echo wrong >&2; exit 3"
    found = [piece async for piece in pieces(["sh", "-c", script], timeout=60)]
    assert b"".join(found) == bytes(1000000) + b"wrong\n"
    assert max(map(len, found)) <= 128 << 10


async def test_a_command_ends_with_its_reader() -> None:
    async with asyncio.timeout(30), aclosing(pieces(["sh", "-c", "echo $$; exec yes"], timeout=60)) as printed:
        pid = int((await anext(printed)).split(b"\n", 1)[0])
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_command_that_takes_too_long_or_cannot_be_started_is_an_error() -> None:
    with pytest.raises(CommandError, match="sleep 600: killed"):
        _ = [piece async for piece in pieces(["sleep", "600"], timeout=0.05)]
    with pytest.raises(CommandError, match="No such file"):
        _ = [piece async for piece in pieces(["/no/such/command"], timeout=60)]
