"""Output of commands that probes and hooks run: the agent buffers a limited part, and discards output above the limit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent import commands
from agent.interfaces import HookError
from agent.pods.hooks import Hooks
from agent.probes.handlers import Handlers
from agent.probes.result import Target, Verdict
from agent.threads import Owner
from cri import channel
from cri.channel import MESSAGE_BYTES
from cri.client import Client
from cri.messages import ExecSyncResponse, api
from kube.api import core_v1
from tests.support.answering_runtime import answering_runtime

MIB = 1 << 20
AT_ONCE = 28
NEVER, EARLY_HEADERS = -1, -2
"""Sizes of commands that do not end, the second with headers at once, as no known runtime sends them."""


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[str]:
    """A runtime whose commands write as many bytes as their first argument says, and exit with the second one."""

    together = asyncio.Barrier(AT_ONCE)

    async def exec_sync(request: Any, context: Any) -> bytes:
        size, code = map(int, request.cmd[:2])
        if size == EARLY_HEADERS:
            await context.send_initial_metadata(())
        if size < 0:
            await asyncio.sleep(60)
        if size == 15 * MIB:
            await together.wait()
        return ExecSyncResponse(stdout=b"x" * size, exit_code=code).SerializeToString()

    async with answering_runtime(tmp_path, "ExecSync", api.ExecSyncRequest, exec_sync) as path:
        yield path


CLIENT = """
import asyncio, json, resource, sys
from tests.contract.agent import test_command_output as test

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

async def main():
    async with test.Client(sys.argv[1]) as client:
        await test.probe(client, 1)
        before = peak()
        results = await asyncio.gather(*(test.probe(client, 15 * test.MIB) for _ in range(test.AT_ONCE)))
        print(json.dumps([peak() - before, sorted({result.verdict.name for result in results})]))

asyncio.run(main())
"""


async def probe(client: Client, size: int, code: int = 0, namespace: str = "ns") -> Any:
    action = core_v1.Probe(exec=core_v1.ExecAction(command=[str(size), str(code)]), timeout_seconds=60)
    target = Target(core_v1.Container(name="c", image="i"), "id", "127.0.0.1", Owner("pod", namespace))
    return await Handlers(client.runtime).run(action, target)


async def test_many_large_outputs_take_the_memory_of_a_few(endpoint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, endpoint, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    mebibytes, verdicts = json.loads(output)
    assert verdicts == ["SUCCESS"]
    assert mebibytes < 130  # 420 MiB are sent; one output is held as a gRPC message, as bytes, decoded and as a field


async def test_outputs_are_received_one_at_a_time_round_robin_over_namespaces(endpoint: str) -> None:
    ended: list[str] = []

    async def one(client: Client, namespace: str) -> None:
        await probe(client, MIB, namespace=namespace)
        ended.append(namespace)

    async with Client(endpoint) as client:
        async with asyncio.TaskGroup() as tasks:
            async with commands.turn_of("held"):
                for _ in range(4):
                    tasks.create_task(one(client, "many"))
                await asyncio.sleep(0.5)
                tasks.create_task(one(client, "other"))
                await asyncio.sleep(0.5)
                assert not ended
    assert ended.index("other") <= 1


async def test_a_probe_that_writes_much_succeeds_and_has_the_beginning_of_its_output(endpoint: str) -> None:
    async with Client(endpoint) as client:
        result = await probe(client, MIB)
        assert (result.verdict, result.message) == (Verdict.SUCCESS, "x" * 10240)
        assert (await probe(client, MIB, 1)).verdict is Verdict.FAILURE


async def test_more_output_than_a_message_has_is_an_error_and_no_failure(endpoint: str) -> None:
    async with Client(endpoint) as client:
        result = await probe(client, MESSAGE_BYTES)
        assert result.verdict is Verdict.ERRORED
        assert result.message.startswith("rpc error: code = ResourceExhausted desc = ")
        assert (await probe(client, 1)).verdict is Verdict.SUCCESS


async def test_the_message_of_a_failed_hook_is_short(endpoint: str) -> None:
    handler = core_v1.LifecycleHandler(exec=core_v1.ExecAction(command=["20000", "7", "y" * 100000]))
    async with Client(endpoint) as client:
        with pytest.raises(HookError) as raised:
            await Hooks(client).run(core_v1.Pod(), "", core_v1.Container(name="c"), "id", handler)
    message = str(raised.value)
    assert message.startswith("command '20000 7 yyy") and "...' exited with 7: xxx" in message
    assert len(message) == 1024


async def test_the_wait_for_other_outputs_is_no_part_of_a_commands_deadline(endpoint: str) -> None:
    async with Client(endpoint) as client:
        async with commands.turn_of("held"):
            task = asyncio.create_task(
                client.runtime._commands.unary_in_turn(
                    "/runtime.v1.RuntimeService/ExecSync",
                    api.ExecSyncRequest(cmd=["1", "0"]),
                    ExecSyncResponse,
                    0.5,
                    commands.turn_of("ns"),
                    lambda answer: answer.exit_code,
                )
            )
            await asyncio.sleep(1)
            assert not task.done()
        assert await task == 0


async def test_a_command_that_does_not_end_exceeds_its_deadline(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(endpoint) as client:
        monkeypatch.setattr(client.runtime, "_timeout", -59.5)
        result = await probe(client, NEVER)
        assert result.verdict is Verdict.FAILURE and result.message.endswith("timed out")


async def test_an_answer_that_is_begun_and_not_finished_keeps_no_turn_and_is_an_error(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "TURN_SECONDS", 0.3)
    async with Client(endpoint) as client:
        unfinished = asyncio.create_task(probe(client, EARLY_HEADERS))
        await asyncio.sleep(0.1)
        assert (await probe(client, 1, namespace="other")).verdict is Verdict.SUCCESS
        assert (await unfinished).verdict is Verdict.ERRORED
