"""Commands whose output comes in pieces."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
import uvloop

from kube.process import CommandError, pieces, run


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_a_command_that_ends_before_it_reads_its_input_fails_with_its_status(
    loop: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def failing() -> None:
        for _ in range(30):
            with pytest.raises(CommandError, match="exit status 4: no"):
                await run(["sh", "-c", "echo no >&2; exit 4"], input="x" * (1 << 20))
        assert (await run(["sha256sum"], input="x" * (1 << 20))).stdout.startswith("8f990ba0")

    loop(failing())
    gc.collect()
    assert not caplog.messages  # of an exception that nobody retrieved


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
