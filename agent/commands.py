"""Runs commands in containers for probes and hooks.

A command may write 16 MiB, which the runtime sends in one message and which the agent holds several times while it decodes it;
of all of it 10 KiB count. So the outputs are received one at a time, round robin over namespaces. A command waits only with its
output, when it has ended: it delays no other while it runs, and the wait is no part of its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from cri.runtime_service import RuntimeService
from kube.serving.fair_queue import Slots

OUTPUT_BYTES = 10 << 10
"""Bytes of output that count (upstream: maxReadLength in pkg/probe/exec)."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code of a command, and the beginning of its output: stdout, then stderr."""

    exit_code: int
    output: str


def turn_of(namespace: str) -> AbstractAsyncContextManager[None]:
    """Return a context in which the output of a command of a namespace is received."""
    return _turns.setdefault(asyncio.get_running_loop(), Slots(1)).slot(namespace)


async def run(
    runtime: RuntimeService, namespace: str, container_id: str, command: Sequence[str], timeout_seconds: int = 0
) -> Ended:
    """Run a command to its end; 0 waits for ever. Raise CRIError."""
    answer = await runtime.exec_sync(container_id, command, timeout_seconds, most=OUTPUT_BYTES, turn=turn_of(namespace))
    output = answer.stdout[:OUTPUT_BYTES] + answer.stderr[:OUTPUT_BYTES]
    return Ended(answer.exit_code, output[:OUTPUT_BYTES].decode(errors="replace"))
