"""The summary API's answer (kubelet stats/v1alpha1), from a snapshot, as pieces of JSON.

A pod may have thousands of volumes, and the answer of a node a hundred megabytes: it is encoded while it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from agent.usage.model import CPU, ContainerUse, Filesystem, Interface, Memory, NodeUse, PodUse, Snapshot
from kube.clock import format_time

PIECE_BYTES = 32 << 10
"""Bytes of a piece, less an entry: 200 volumes."""


def pieces(snapshot: Snapshot, *, only_cpu_and_memory: bool = False) -> Iterator[bytes]:
    """Yield a snapshot as /stats/summary shows it."""
    piece = bytearray()
    for part in _parts(snapshot, short=only_cpu_and_memory):
        piece += part
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _parts(snapshot: Snapshot, *, short: bool) -> Iterator[bytes]:
    yield b'{"node":' + _encoded(_node(snapshot.node, short=short)) + b',"pods":['
    for number, pod in enumerate(snapshot.pods):
        if number:
            yield b","
        yield from _pod(pod, snapshot.node, short=short)
    yield b"]}"


def _node(node: NodeUse, *, short: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "nodeName": node.name,
        "startTime": _time(node.started_at),
        "cpu": _cpu(node.cpu),
        "memory": _memory(node.memory),
    }
    if node.pods_cpu is not None and node.pods_memory is not None:
        pods = {"name": "pods", "startTime": _time(node.started_at)}
        shown["systemContainers"] = [pods | {"cpu": _cpu(node.pods_cpu), "memory": _memory(node.pods_memory)}]
    if not short:
        shown["network"] = _network(node.cpu.time, node.interfaces)
        shown["fs"] = _filesystem(node.filesystem)
        shown["runtime"] = {
            "imageFs": _filesystem(node.image_filesystem),
            "containerFs": _filesystem(node.image_filesystem),
        }
        shown["rlimit"] = {"time": _time(node.cpu.time), "maxpid": node.max_pids, "curproc": node.pids}
    return shown


def _pod(pod: PodUse, node: NodeUse, *, short: bool) -> Iterator[bytes]:
    shown: dict[str, Any] = {"podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}}
    if pod.started_at:
        shown["startTime"] = _time(pod.started_at)
    if pod.cpu is not None:
        shown["cpu"] = _cpu(pod.cpu)
    if pod.memory is not None:
        shown["memory"] = _memory(pod.memory)
    if not short:
        if pod.interfaces:
            shown["network"] = _network(pod.cpu.time if pod.cpu else node.cpu.time, pod.interfaces)
        used, inodes = pod.files
        used += sum(c.rootfs_used + c.logs_used for c in pod.containers) + sum(own.used for _, own in pod.volumes)
        inodes += sum(c.rootfs_inodes for c in pod.containers) + sum(own.inodes_used for _, own in pod.volumes)
        shown["ephemeral-storage"] = _filesystem(node.filesystem) | {"usedBytes": used, "inodesUsed": inodes}
        shown["process_stats"] = {"process_count": pod.processes}
    yield _encoded(shown).removesuffix(b"}")
    yield from _list("containers", (_container(container, node, short=short) for container in pod.containers))
    if not short:
        yield from _list("volume", _volumes(pod))
    yield b"}"


def _list(name: str, items: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield a further field of an object, which is a list."""
    yield b',"%s":[' % name.encode()
    for number, item in enumerate(items):
        yield (b"," if number else b"") + _encoded(item)
    yield b"]"


def _volumes(pod: PodUse) -> Iterator[dict[str, Any]]:
    for name, use in pod.volumes:
        yield {"name": name, **_filesystem(use)}
    for own in pod.persistent:
        claim = {"pvcRef": {"name": own.claim[1], "namespace": own.claim[0]}} if own.claim is not None else {}
        yield {"name": own.name, **_filesystem(own.filesystem), **claim}


def _container(container: ContainerUse, node: NodeUse, *, short: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": container.name,
        "startTime": _time(container.started_at),
        "cpu": _cpu(container.cpu),
        "memory": _memory(container.memory),
    }
    if not short:
        rootfs = {"usedBytes": container.rootfs_used, "inodesUsed": container.rootfs_inodes}
        logs = {"usedBytes": container.logs_used, "inodesUsed": container.logs_inodes}
        shown["rootfs"] = _filesystem(node.image_filesystem) | rootfs
        shown["logs"] = _filesystem(node.filesystem) | logs
    return shown


def _cpu(cpu: CPU) -> dict[str, Any]:
    shown: dict[str, Any] = {"time": _time(cpu.time)}
    if cpu.nano_cores is not None:
        shown["usageNanoCores"] = cpu.nano_cores
    return shown | {"usageCoreNanoSeconds": cpu.total}


def _memory(memory: Memory) -> dict[str, Any]:
    available = {} if memory.available is None else {"availableBytes": memory.available}
    return {
        "time": _time(memory.time),
        **available,
        "usageBytes": memory.usage,
        "workingSetBytes": memory.working_set,
        "rssBytes": memory.rss,
        "pageFaults": memory.page_faults,
        "majorPageFaults": memory.major_page_faults,
    }


def _filesystem(use: Filesystem) -> dict[str, Any]:
    return {
        "time": _time(use.time),
        "availableBytes": use.available,
        "capacityBytes": use.capacity,
        "usedBytes": use.used,
        "inodesFree": use.inodes_free,
        "inodes": use.inodes,
        "inodesUsed": use.inodes_used,
    }


def _network(time: float, interfaces: Sequence[Interface]) -> dict[str, Any]:
    shown = [
        {
            "name": one.name,
            "rxBytes": one.rx_bytes,
            "rxErrors": one.rx_errors,
            "txBytes": one.tx_bytes,
            "txErrors": one.tx_errors,
        }
        for one in interfaces
    ]
    return {"time": _time(time), **(shown[0] if shown else {"name": ""}), "interfaces": shown}


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _encoded(shown: dict[str, Any]) -> bytes:
    return json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
