"""A small CSI driver for tests: real gRPC on real sockets, real bind mounts and loop devices.

A volume is a folder below `data`, or an image file behind a loop device where it is a block volume. The driver notes every call
(`calls`) and fails where it is set to (`failures`). `python -m tests.support.csi_driver` runs it as a process beside its
cluster's side (csi_sidecars.py), as a driver's pods would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from agent.csi.messages import Ability, api
from agent.plugins.handler import CSI
from agent.volumes import mounts
from tests.support.plugins import RegistrationSocket

ABILITIES = (Ability.STAGE_UNSTAGE_VOLUME, Ability.EXPAND_VOLUME, Ability.GET_VOLUME_STATS)


class CSIDriver:
    """One driver on one node."""

    def __init__(
        self,
        name: str,
        data: Path,
        node_id: str = "here",
        *,
        abilities: tuple[int, ...] = ABILITIES,
        limit: int = 0,
        topology: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.data, self.node_id = name, data, node_id
        self.abilities, self.limit, self.topology = abilities, limit, dict(topology or {})
        self.calls: list[tuple[str, Any]] = []
        self.failures: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.held: dict[str, asyncio.Event] = {}
        """By rpc: done, and then not answered before the event is set."""
        self.endpoint = data / "csi.sock"

    def made(self, rpc: str) -> list[Any]:
        """List the requests of one rpc."""
        return [request for called, request in self.calls if called == rpc]

    # -- the node service ---------------------------------------------------------------------------------------------
    def node_get_info(self, request: Any) -> Any:
        return api.NodeGetInfoResponse(
            node_id=self.node_id,
            max_volumes_per_node=self.limit,
            accessible_topology=api.Topology(segments=self.topology),
        )

    def node_get_capabilities(self, request: Any) -> Any:
        return api.NodeGetCapabilitiesResponse(
            capabilities=[api.NodeServiceCapability(rpc=Ability(type=kind)) for kind in self.abilities]
        )

    def node_stage_volume(self, request: Any) -> Any:
        staging = Path(request.staging_target_path)
        assert staging.is_dir(), "the agent makes the staging path"
        if not request.volume_capability.HasField("block") and not mounts.is_mount_point(staging):
            _mount("--bind", str(self.folder(request.volume_id)), str(staging))
        return api.NodeStageVolumeResponse()

    def node_unstage_volume(self, request: Any) -> Any:
        _unmount(Path(request.staging_target_path))
        return api.NodeUnstageVolumeResponse()

    def node_publish_volume(self, request: Any) -> Any:
        target = Path(request.target_path)
        assert target.parent.is_dir(), "the agent makes the folder of the target path"
        if mounts.is_mount_point(target):
            return api.NodePublishVolumeResponse()
        if request.volume_capability.HasField("block"):
            target.touch()
            _mount("--bind", self.device(request.volume_id), str(target))
            return api.NodePublishVolumeResponse()
        target.mkdir(exist_ok=True)
        _mount("--bind", request.staging_target_path or str(self.folder(request.volume_id)), str(target))
        if request.readonly:
            _mount("-o", "remount,bind,ro", str(target))
        return api.NodePublishVolumeResponse()

    def node_unpublish_volume(self, request: Any) -> Any:
        target = Path(request.target_path)
        _unmount(target)
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)
        return api.NodeUnpublishVolumeResponse()

    def node_expand_volume(self, request: Any) -> Any:
        return api.NodeExpandVolumeResponse(capacity_bytes=request.capacity_range.required_bytes)

    def node_get_volume_stats(self, request: Any) -> Any:
        statistics = os.statvfs(request.volume_path)
        assert statistics.f_blocks
        return api.NodeGetVolumeStatsResponse(
            usage=[
                api.VolumeUsage(unit=api.VolumeUsage.BYTES, total=1 << 30, used=3 << 20, available=1021 << 20),
                api.VolumeUsage(unit=api.VolumeUsage.INODES, total=1000, used=7, available=993),
            ]
        )

    # -- volumes ------------------------------------------------------------------------------------------------------
    def folder(self, handle: str) -> Path:
        folder = self.data / "volumes" / handle
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def device(self, handle: str) -> str:
        image = self.data / f"{handle}.img"
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(16 << 20)
        known = _output("losetup", "--associated", str(image))
        return known.split(":")[0] if known else _output("losetup", "--find", "--show", str(image))

    def release_devices(self) -> None:
        for image in self.data.glob("*.img"):
            for line in _output("losetup", "--associated", str(image)).splitlines():
                subprocess.run(["losetup", "--detach", line.split(":")[0]], check=False)

    # -- serving ------------------------------------------------------------------------------------------------------
    @contextlib.asynccontextmanager
    async def serving(
        self, registry: Path, versions: tuple[str, ...] = ("1.0.0",)
    ) -> AsyncIterator[RegistrationSocket]:
        """Serve, and register with the agent of this registry folder, until the context ends."""
        for folder in (self.data, registry):
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        self.endpoint.unlink(missing_ok=True)
        server = grpc.aio.server()
        handlers = {}
        for method in api.DESCRIPTOR.services_by_name["Node"].methods:
            request = getattr(api, method.input_type.name)
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(
                self._serve(method.name),
                request_deserializer=request.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("csi.v1.Node", handlers),))
        server.add_insecure_port(f"unix://{self.endpoint}")
        await server.start()
        try:
            socket = registry / f"{self.name}-reg.sock"
            async with RegistrationSocket(socket, CSI, self.name, str(self.endpoint), versions) as registration:
                yield registration
        finally:
            await server.stop(None)
            self.release_devices()

    def _serve(self, rpc: str) -> Any:
        implementation = getattr(self, re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower())

        async def serve(request: Any, context: Any) -> Any:
            self.calls.append((rpc, request))
            self.noted(rpc, request)
            if (failure := self.failures.get(rpc)) is not None:
                await context.abort(*failure)
            try:
                answer = await asyncio.to_thread(implementation, request)
                if (held := self.held.get(rpc)) is not None:
                    await held.wait()
                return answer
            except (OSError, subprocess.CalledProcessError, AssertionError) as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error))

        return serve

    def noted(self, rpc: str, request: Any) -> None:
        """A call came in; the process prints it."""


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def _unmount(target: Path) -> None:
    if mounts.is_mount_point(target):
        subprocess.run(["umount", str(target)], check=True, stdin=subprocess.DEVNULL)


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()


class _Printing(CSIDriver):
    def noted(self, rpc: str, request: Any) -> None:
        print(json.dumps({"rpc": rpc, "request": MessageToDict(request)}), flush=True)


async def _main(options: argparse.Namespace) -> None:
    from kube import kubeconfig
    from kube.client import Client
    from kube.transport import HttpsTransport
    from tests.support.csi_sidecars import Sidecars

    topology = {f"topology.{options.name}/node": options.node}
    driver = _Printing(options.name, Path(options.data), options.node, topology=topology)
    client = Client(HttpsTransport(kubeconfig.load(Path(options.kubeconfig)), "csi-driver"))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        async with driver.serving(Path(options.registry)), asyncio.TaskGroup() as group:
            task = group.create_task(Sidecars(client, driver).run())
            await stopped.wait()
            task.cancel()
    finally:
        await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("name", "data", "registry", "node", "kubeconfig"):
        parser.add_argument(f"--{option}", required=True)
    asyncio.run(_main(parser.parse_args()))
    sys.exit(0)
