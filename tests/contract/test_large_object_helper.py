"""The helper process for large objects: its start, its end, its limits and its failures."""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from control.event_loop import helper_client, offload
from control.event_loop.helper_client import Helper, HelperFailed
from control.server.helper import __main__ as helper_main
from control.server.helper import jobs
from kube.errors import StatusError

CONFIGMAP = ["", "v1", "configmaps", ["10.96.0.0/12"], 30000, 32768, False, [], "", 6443]
NEVER = b'{"metadata":{"name":"A"}}'


# -- the process --------------------------------------------------------------------------------------------------------
@pytest_asyncio.fixture
async def helper() -> AsyncIterator[Helper]:
    helper = Helper()
    yield helper
    await helper.close()


def finishing(helper: Helper, data: bytes = NEVER) -> Any:
    return helper.call("finish_create", CONFIGMAP, "default", data, True)


def test_the_process_runs_the_code_of_the_server() -> None:
    """Not that of another installation, or of the folder above, which others may write to."""
    assert Path(helper_client._ROOT, "control/event_loop/helper_client.py").samefile(helper_client.__file__)


async def test_the_process_is_started_by_the_first_job_and_does_the_next_one_too(helper: Helper) -> None:
    assert helper.pid is None
    with pytest.raises(StatusError, match=r"metadata\.name: Invalid value"):
        await finishing(helper)
    first = helper.pid
    value, shown, name, warnings = await finishing(helper, b'{"metadata":{"name":"a"}}')
    assert msgspec.json.decode(shown)["metadata"] == {"name": "a", "namespace": "default"}
    assert b'"resourceVersion":""' in value and (name, warnings) == ("a", [])
    assert helper.pid == first


async def test_the_process_goes_before_the_server_where_memory_runs_out(helper: Helper) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert score_of(helper) >= 500


def score_of(helper: Helper) -> int:
    return int(Path(f"/proc/{helper.pid}/oom_score_adj").read_text())


async def test_a_killed_process_that_does_not_end_blocks_nobody(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    first = helper._process
    assert first is not None
    monkeypatch.setattr(helper_client, "END_SECONDS", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(first, "kill", lambda: None)
        patched.setattr(first, "wait", asyncio.Event().wait)
        async with asyncio.timeout(30):
            await helper.close()
            with pytest.raises(StatusError):
                await finishing(helper)
    assert helper.pid != first.pid
    with contextlib.suppress(ProcessLookupError):
        first.kill()
    await first.wait()


async def test_a_job_that_takes_too_long_ends_with_its_process(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGSTOP)
    monkeypatch.setattr(helper_client, "JOB_SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        await finishing(helper)
    assert helper.pid is None
    monkeypatch.undo()
    with pytest.raises(StatusError):
        await finishing(helper)


def test_a_job_that_takes_too_much_of_the_processor_is_a_timeout_and_the_process_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless() -> None:
        while True:
            with contextlib.suppress(Exception):
                sorted(range(100), key=lambda number: -number)

    monkeypatch.setitem(jobs.JOBS, "endless", endless)
    monkeypatch.setattr(helper_main, "PROCESSOR_SECONDS", 0.02)

    def timers() -> str:
        return Path("/proc/self/timers").read_text()  # POSIX timers of this process

    before = signal.signal(signal.SIGPROF, helper_main._end_job)
    try:
        for _ in range(3):
            value, error = helper_main._done(msgspec.msgpack.encode(["endless", []]))
            assert value is None
            assert error[:3] == [504, "Timeout", "request did not complete within the allotted timeout"]
            assert helper_main._done(msgspec.msgpack.encode(["none", []])) == [None, "KeyError: 'none'"]
        assert gc.isenabled() and not timers()
    finally:
        signal.signal(signal.SIGPROF, before)


async def test_a_process_that_was_killed_fails_its_job_alone(helper: Helper) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGSTOP)
    waiting = asyncio.ensure_future(finishing(helper))
    await asyncio.sleep(0)
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(HelperFailed):
        await waiting
    with pytest.raises(StatusError):
        await finishing(helper)


async def test_a_fault_of_a_job_is_no_refusal(helper: Helper) -> None:
    with pytest.raises(HelperFailed, match="DecodeError"):
        await finishing(helper, b"no JSON")


async def test_a_fault_is_one_record_of_the_log_whose_other_lines_are_indented(
    helper: Helper, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HelperFailed):
        await finishing(helper, b'{"metadata":{"name":"a"},"data":5}')
    written = capfd.readouterr().err.splitlines()
    assert "a job for a large object failed" in written[0]
    assert len(written) > 2 and all(line.startswith("    ") for line in written[1:])


async def test_a_process_without_jobs_ends(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_client, "IDLE_SECONDS", 0.01)
    with pytest.raises(StatusError):
        await finishing(helper)
    pid = helper.pid
    async with asyncio.timeout(10):
        while helper.pid is not None or os.access(f"/proc/{pid}", os.F_OK):
            await asyncio.sleep(0.01)


async def test_a_job_that_nobody_waits_for_any_more_is_ended_and_the_next_ones_turn_comes() -> None:
    try:
        with pytest.raises(StatusError):
            await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
        pid = offload._workers().helper.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        left = asyncio.ensure_future(offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(StatusError, match="Invalid value"):
            await offload.by_helper("bob", "finish_create", CONFIGMAP, "default", NEVER, True)
    finally:
        await offload.close()


async def test_a_short_job_that_nobody_waits_for_any_more_ends_by_itself() -> None:
    try:
        with pytest.raises(StatusError):
            await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
        pid = offload._workers().helper.pid
        left = asyncio.ensure_future(offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(StatusError, match="Invalid value"):
            await offload.by_helper("bob", "finish_create", CONFIGMAP, "default", NEVER, True)
        assert offload._workers().helper.pid == pid
    finally:
        await offload.close()


async def test_a_job_that_takes_too_long_is_a_timeout_to_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_client, "JOB_SECONDS", 0.0)
    with pytest.raises(StatusError) as found:
        await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
    assert (found.value.code, found.value.reason) == (504, "Timeout")
