"""Runs a probe: exec, tcpSocket and grpc here, httpGet in http.py."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import grpc
import grpc.aio

from agent import commands, host_lookups
from agent.podspec.environment import ContainerConfigError, expand_all
from agent.probes.http import USER_AGENT, HTTPProber
from agent.probes.http_errors import reason
from agent.probes.result import Result, Target, errored, failure, success
from cri.errors import CRIError, DeadlineExceededError
from cri.runtime_service import RuntimeService
from cri.texts import shortened
from kube.api import core_v1
from kube.loop_timeout import LONGEST, LoopTimeout
from kube.urls import host_port

_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
GRPC_RESPONSE_BYTES = 1024
"""Longest response; one of the health protocol has 2 bytes, and gRPC keeps the part of a longer one that has arrived."""


class Handlers:
    """Makes a probe of whichever kind it is."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self.http = HTTPProber()

    async def run(self, probe: core_v1.Probe, target: Target) -> Result:
        """Make one probe; never takes much longer than its timeout."""
        if probe.exec is not None:
            return await self._exec(probe, target)
        if probe.http_get is not None:
            return await self.http.probe(probe, target)
        if probe.tcp_socket is not None:
            return await _tcp(probe, target)
        if probe.grpc is not None:
            return await _grpc(probe, target)
        return errored(f"missing probe handler for container {target.container.name}")

    async def _exec(self, probe: core_v1.Probe, target: Target) -> Result:
        assert probe.exec is not None
        # Only variables with a literal value are known here, as with upstream.
        values = {variable.name: variable.value or "" for variable in target.container.env if not variable.value_from}
        try:
            command = expand_all(probe.exec.command, values)
        except ContainerConfigError as error:
            return errored(str(error))
        try:
            result = await commands.run(
                self._runtime, target.owner.namespace, target.container_id, command, probe.timeout_seconds or 1
            )
        except DeadlineExceededError:
            return failure(f'command "{" ".join(command)}" timed out')
        except CRIError as error:
            return errored(error.grpc_text())
        return success(result.output) if result.exit_code == 0 else failure(result.output)


async def _tcp(probe: core_v1.Probe, target: Target) -> Result:
    action = probe.tcp_socket
    assert action is not None
    try:
        host, port = action.host or target.pod_ip, target.port(action.port)
    except LookupError as error:
        return errored(str(error))
    where = f"dial tcp {host_port(host, port)}"
    try:
        async with LoopTimeout(probe.timeout_seconds or 1):
            transport, _ = await host_lookups.dial(asyncio.Protocol, host, port, target.owner)
    except TimeoutError:
        return failure(f"{where}: i/o timeout")
    except (socket.gaierror, UnicodeError):
        return failure(f"dial tcp: lookup {host}: no such host")
    except OSError as error:
        return failure(f"{where}: connect: {reason(error)}")
    transport.close()
    return success()


async def _grpc(probe: core_v1.Probe, target: Target) -> Result:
    """Ask grpc.health.v1.Health; the messages are small enough to be written by hand: one string, one enum."""
    action = probe.grpc
    assert action is not None
    seconds = probe.timeout_seconds or 1
    address = host_port(target.pod_ip, action.port)
    late_rpc = f"timeout: health rpc did not complete within {seconds}s"
    service = (action.service or "").encode()
    request = b"\x0a" + _varint(len(service)) + service if service else b""
    options = [
        ("grpc.primary_user_agent", USER_AGENT),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", GRPC_RESPONSE_BYTES),
    ]
    limit = LoopTimeout(seconds)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        try:
            async with limit:
                await channel.channel_ready()
        except TimeoutError:
            late = f'timeout: failed to connect service "{address}" within {seconds}s: context deadline exceeded'
            return failure(late)
        identity: Callable[[bytes], bytes] = bytes
        check = channel.unary_unary(_HEALTH, request_serializer=identity, response_deserializer=identity)
        try:
            async with limit:
                answer: bytes = await check(request, timeout=seconds * LONGEST)  # gRPC measures it in a thread
        except TimeoutError:
            return failure(late_rpc)
        except grpc.aio.AioRpcError as error:
            details = shortened(error.details() or "")
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                lacks = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
                return failure(f"error: {lacks}: {details}")
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return failure(late_rpc)
            return failure(f"error: health rpc probe failed: {error.code().name}: {details}")
    status = answer[1] if answer[:1] == b"\x08" and len(answer) > 1 else 0
    if status != 1:
        return failure(f'service unhealthy (responded with "{_SERVING.get(status, str(status))}")')
    return success("service healthy")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
