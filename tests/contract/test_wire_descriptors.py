"""Protobuf output is readable by protobuf's own library with upstream's descriptors, which kubectl carries, and vice versa."""

from __future__ import annotations

import os
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from google.protobuf.message import Message

from kube.resources import RESOURCES
from kube.schema import wire, wire_encode
from tests.support.objects import make

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "wire"), run_name="descriptors")
KINDS = sorted({(r.module, r.kind): r for r in RESOURCES}.values(), key=lambda r: (r.module, r.kind))


@pytest.fixture(scope="module")
def types() -> dict[str, type[Message]]:
    """Return upstream's message types by our name for them (core_v1.Pod)."""
    assert shutil.which("kubectl") is not None, "kubectl is not installed"
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for folder in os.environ["PATH"].split(os.pathsep):
        kubectl = Path(folder, "kubectl")
        if not files and kubectl.is_file():
            files = {file.name: file for file in SCRIPT["files"](kubectl) if file.name.startswith("k8s.io/")}
    if not files:
        pytest.skip("no kubectl on PATH carries descriptors: 1.35 and newer leave them out")
    pool, added = descriptor_pool.DescriptorPool(), set()

    def add(file: descriptor_pb2.FileDescriptorProto) -> None:
        if file.name in added:
            return
        added.add(file.name)
        kept = [name for name in file.dependency if name in files]
        for name in kept:
            add(files[name])
        file.dependency[:] = kept
        pool.AddSerializedFile(file.SerializeToString())

    for file in files.values():
        add(file)
    found: dict[str, type[Message]] = {}
    for file in files.values():
        for message in file.message_type:
            name = f"{file.package}.{message.name}"
            found[SCRIPT["short"](name)] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def misread(message: Message, path: str) -> Iterator[str]:
    """Yield the fields that the library knows and could not take: they were written as another type."""
    for field in unknown_fields.UnknownFieldSet(message):
        if field.field_number in message.DESCRIPTOR.fields_by_number:
            yield f"{path}.{message.DESCRIPTOR.fields_by_number[field.field_number].name}"
    for descriptor, value in message.ListFields():
        name, inner = f"{path}.{descriptor.name}", descriptor.message_type
        if inner is None:
            continue
        if inner.GetOptions().map_entry:
            value = value.values() if inner.fields_by_name["value"].message_type is not None else ()
        elif not descriptor.is_repeated:
            value = [value]
        for item in value:
            yield from misread(item, name)


def test_the_library_reads_what_is_written_and_writes_what_is_read(types: dict[str, type[Message]]) -> None:
    read = 0
    for resource in KINDS:
        message_type = types.get(f"{resource.module}.{resource.kind}")
        if message_type is None:
            continue  # of an extension server, or younger than this kubectl
        read += 1
        for seed in range(6):
            obj = make(resource.type, seed, wire_encode.without_number)
            message = message_type.FromString(wire_encode.encode(obj, resource.module, resource.kind))
            assert not list(misread(message, resource.kind))
            assert wire.decode(message.SerializeToString(), resource.module, resource.kind) == obj, resource.kind
    assert read > 50, "kubectl carries nearly all kinds"


def test_the_library_opens_envelopes_lists_and_watch_events(types: dict[str, type[Message]]) -> None:
    pod = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    framed = wire_encode.framed(wire_encode.encode(pod, "core_v1", "Pod"))
    head, tail = wire_encode.around_list("v1", "PodList", {"resourceVersion": "7"}, 2 * len(framed))
    data = head + framed + framed + tail
    envelope: Any = types["pkg_runtime.Unknown"].FromString(data[4:])
    assert (envelope.typeMeta.apiVersion, envelope.typeMeta.kind) == ("v1", "PodList")
    listing: Any = types["core_v1.PodList"].FromString(envelope.raw)
    assert listing.metadata.resourceVersion == "7" and [item.metadata.name for item in listing.items] == ["web"] * 2
    frame = wire_encode.watch_frame("ADDED", wire_encode.envelope("v1", "Pod", framed))
    event: Any = types["meta_v1.WatchEvent"].FromString(frame[4:])
    envelope = types["pkg_runtime.Unknown"].FromString(event.object.raw[4:])
    found: Any = types["core_v1.Pod"].FromString(envelope.raw)
    assert event.type == "ADDED" and found.metadata.labels["a"] == "b" and found.spec.containers[0].image == "i"
