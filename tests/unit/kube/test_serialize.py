"""Encoding of texts that are not valid Unicode."""

from __future__ import annotations

import json
from typing import Any

from kube.api import core_v1, meta_v1
from kube.client import STRATEGIC, Client
from kube.serialize import encode, encode_readable, readable
from tests.unit.kube.fake_api import FakeAPI

FILE = b"/volume/\xff\xc3\xa4".decode(errors="surrogateescape")
SHOWN = "/volume/\ufffd\u00e4"


def test_bytes_of_a_file_name_that_are_no_utf_8_are_replaced() -> None:
    assert (readable(FILE), readable("\u00e4"), readable("a")) == (SHOWN, "\u00e4", "a")


def test_texts_at_any_depth_are_replaced_and_all_else_is_as_it_was() -> None:
    state = core_v1.ContainerState(waiting=core_v1.ContainerStateWaiting(reason="Error", message=FILE))
    status = core_v1.PodStatus(container_statuses=[core_v1.ContainerStatus(name="c", state=state, restart_count=3)])
    sent = json.loads(encode_readable({"status": status, FILE: [FILE, None, 1.5, True]}))
    assert sent.pop(SHOWN) == [SHOWN, None, 1.5, True]
    assert sent["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == SHOWN
    state.waiting = core_v1.ContainerStateWaiting(reason="Error", message=SHOWN)
    assert sent == json.loads(encode({"status": status}))


async def test_the_client_sends_what_the_server_can_read() -> None:
    class Api(FakeAPI):
        async def request(self, *given: Any, **options: Any) -> Any:
            bodies.append(json.loads(options["body"]))
            return await super().request(*given, **options)

    bodies: list[Any] = []
    client = Client(Api())
    metadata = meta_v1.ObjectMeta(name="p", namespace="n")
    await client.create(core_v1.Pod(metadata=metadata, status=core_v1.PodStatus(message=FILE)))
    await client.patch(core_v1.Pod, "p", "n", {"status": {"message": FILE}}, type=STRATEGIC)
    assert [body["status"]["message"] for body in bodies] == [SHOWN, SHOWN]
