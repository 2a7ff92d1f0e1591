"""A channel that is closed while calls are under way: they fail as calls do, and their tasks go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from agent.plugins.messages import InfoRequest, PluginInfo
from cri.channel import Channel
from cri.errors import UnavailableError


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[tuple[Channel, asyncio.Event]]:
    """A channel to a server that never answers, and the event of a call that reached it."""
    reached = asyncio.Event()

    async def unary(request: Any, context: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        yield PluginInfo(name="first")
        reached.set()
        await asyncio.Event().wait()

    coding = {"request_deserializer": InfoRequest.FromString, "response_serializer": PluginInfo.SerializeToString}
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary, **coding),
        "Stream": grpc.unary_stream_rpc_method_handler(stream, **coding),
    }
    server, socket = grpc.aio.server(), tmp_path / "s"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.Y", methods),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    channel = Channel(str(socket))
    yield channel, reached
    await channel.close()
    await server.stop(None)


async def _unary(channel: Channel) -> None:
    await channel.unary("/x.Y/Unary", InfoRequest(), PluginInfo, 30)


async def _stream(channel: Channel) -> None:
    async for _ in channel.stream("/x.Y/Stream", InfoRequest(), PluginInfo, None):
        pass


async def _in_turn(channel: Channel) -> None:
    turn = contextlib.nullcontext()
    await channel.unary_in_turn("/x.Y/Unary", InfoRequest(), PluginInfo, 30, turn, lambda answer: answer)


@pytest.mark.parametrize("call", [_unary, _stream, _in_turn])
async def test_a_call_under_way_fails_when_its_channel_is_closed_and_so_does_a_later_one(held, call) -> None:
    channel, reached = held
    task = asyncio.create_task(call(channel))
    await reached.wait()
    await channel.close()
    await asyncio.wait({task})
    assert not task.cancelled()
    assert isinstance(task.exception(), UnavailableError)
    with pytest.raises(UnavailableError):
        await call(channel)


@pytest.mark.parametrize("call", [_unary, _stream, _in_turn])
async def test_a_call_whose_task_is_cancelled_is_cancelled(held, call) -> None:
    channel, reached = held
    task = asyncio.create_task(call(channel))
    await reached.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_deadline_of_the_caller_remains_one(held) -> None:
    channel, _ = held
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _unary(channel)


async def test_waiting_for_a_socket_fails_when_the_channel_is_closed(tmp_path: Path) -> None:
    channel = Channel(str(tmp_path / "nobody"))
    task = asyncio.create_task(channel.ready())
    await asyncio.sleep(0.05)
    await channel.close()
    await asyncio.wait({task})
    assert isinstance(task.exception(), UnavailableError)
    with pytest.raises(UnavailableError):
        await channel.ready()
