"""The helper's main function: read a job, do it, write what came out, until the server closes its end.

The server's other work goes before its: its priority is lower. Its memory is bounded, so that an object that expands beyond
all measure ends the helper alone.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from control.event_loop.helper_client import LENGTH
from control.server.helper.jobs import JOBS
from kube import errors, log_lines, memory_limit
from kube.collecting import uncollected
from kube.cpu_timer import CpuTimer
from kube.errors import StatusError

log = logging.getLogger(__name__)
NICE = 10
MEMORY = 2 << 30
"""Bytes of address space. The largest body takes a tenth of it."""
PROCESSOR_SECONDS = 5.0
"""Maximum CPU time of a job: everybody else's wait behind it. The costliest takes two seconds."""


def main() -> None:
    """Serve jobs from standard input."""
    os.nice(NICE)
    memory_limit.limit(resource.RLIMIT_AS, MEMORY)
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the server continues until it has drained
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _end_job)
    logging.basicConfig(handlers=[log_lines.handler()])
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (message := _read(source)) is not None:
        answer = msgspec.msgpack.encode(_done(message))
        sink.write(len(answer).to_bytes(LENGTH, "big"))
        sink.write(answer)
        sink.flush()


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH)
    return source.read(int.from_bytes(head, "big")) if len(head) == LENGTH else None


class _TooLong(BaseException):
    """Raised in a job; no Exception, which it might continue after."""


def _end_job(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def _done(message: bytes) -> list[Any]:
    """Return [value, None], or [None, error]: the parts of a StatusError, or a text for a fault of ours."""
    timer = CpuTimer(PROCESSOR_SECONDS, repeats=False)
    try:
        try:
            with uncollected():  # what a job makes is gone with it
                timer.start()
                job, args = msgspec.msgpack.decode(message)
                return [JOBS[job](*args), None]
        finally:
            timer.close()
    except _TooLong:
        late = errors.timeout("request did not complete within the allotted timeout")
        return [None, [late.code, late.reason, late.message, late.details]]
    except StatusError as error:
        return [None, [error.code, error.reason, error.message, error.details]]
    except Exception as error:
        log.exception("a job for a large object failed")
        return [None, f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    main()
