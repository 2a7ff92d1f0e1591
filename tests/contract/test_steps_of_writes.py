"""No step of the event loop during a write grows with a list or map of its object, whichever of them is large.

Whole requests are made of a running server, so what stands between validation and the store counts, too: admission, the
allocation of addresses and ports, and what is carried out to its end. Lines of Python of the event loop's thread between two
suspensions are counted, so the thread and the process for large objects are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
import pytest_asyncio

from control.auth.user import UserInfo
from control.server.inprocess import InProcessTransport
from kube.json_object import Object
from tests.support.agreeing_lists import BARE, build
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.large_objects import LargeField, large_fields
from tests.support.lines_by_place import Lines

BYTES, MOST_ITEMS = 96 << 10, 3000
"""Length of a body, at the most; so large an object is worked on outside the event loop."""
MOST_LINES = 6000
"""Lines between two suspensions: two for each item of the longest list."""
BY_ADMINISTRATORS = ("validatingadmissionpolicies.admissionregistration.k8s.io",)
"""Kinds of which many steps follow a write: rules that apply to all requests are prepared, once for each change."""
FIELDS = defaultdict[str, list[LargeField]](list)
for _field in large_fields():
    if "create" in _field.resource.verbs:
        FIELDS[_field.resource.target].append(_field)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


def body(field: LargeField) -> Object:
    """Return an object with as many items as it may have, each with no more than it must have."""
    count = MOST_ITEMS
    while True:
        obj = build(field.resource, [field], range(1, count + 1), BARE)
        if len(msgspec.json.encode(obj)) <= BYTES:
            return obj
        count //= 2


class Writes:
    """Writes of one kind, and the lines of the longest step of each."""

    def __init__(self, server: ApiUnderTest, field: LargeField) -> None:
        user = UserInfo(ADMIN[0], groups=ADMIN[1])
        self._transport = InProcessTransport(server.api.pipeline, user, "test")
        self._resource = field.resource
        self._folder = field.resource.path("default" if field.resource.namespaced else "")
        self.longest = defaultdict[str, int](int)

    async def send(self, verb: str, obj: Object, name: str = "", *, dry_run: bool = True) -> int:
        """Send a write; return the answer's status."""
        method = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}[verb]
        kind = "application/merge-patch+json" if verb == "patch" else "application/json"
        path = f"{self._folder}/{name}" if name else self._folder
        with Lines() as lines:
            answer = await self._transport.request(
                method,
                path,
                query={"dryRun": "All"} if dry_run else {},
                headers={"content-type": kind},
                body=msgspec.json.encode(obj) if obj else b"",
                timeout=None,
            )
        key = f"{verb}{' (dry run)' if dry_run else ''}"
        self.longest[key] = max(self.longest[key], lines.longest)
        return answer.status

    async def send_all(self, obj: Object, small: str) -> None:
        """Create an object, and change the small one of a name to it where there is one, all as dry runs and then in full."""
        for dry_run in (True, False):
            if small:
                for verb in ("update", "patch"):
                    changed = obj | {"metadata": obj["metadata"] | {"name": small}}
                    await self.send(verb, changed, small, dry_run=dry_run)
            status = await self.send("create", obj, dry_run=dry_run)
        if status == 201:
            await self.send("delete", {}, obj["metadata"]["name"], dry_run=False)


def kinds() -> Iterator[object]:
    for target in sorted(FIELDS):  # a pod and its template have 400 fields, which take some minutes
        yield pytest.param(target, marks=[pytest.mark.long] if target in ("pods", "podtemplates") else [])


@pytest.mark.parametrize("target", list(kinds()))
@pytest.mark.asyncio(loop_scope="module")
async def test_no_step_of_a_write_grows_with_a_list_or_map_of_its_object(server: ApiUnderTest, target: str) -> None:
    found = dict[str, dict[str, int]]()
    for number, field in enumerate(FIELDS[target]):
        writes = Writes(server, field)
        obj = body(field)
        name = obj["metadata"].get("name") or "large"
        few = build(field.resource, [], ())
        few["metadata"]["name"] = small = f"{name}-few-{number}"
        if await writes.send("create", few, dry_run=False) != 201:
            small = ""
        writes.longest.clear()
        obj["metadata"]["name"] = f"{name}-{number}"
        await writes.send_all(obj, small)
        if small:
            await writes.send("delete", {}, small, dry_run=False)
        long = {verb: lines for verb, lines in writes.longest.items() if lines > MOST_LINES}
        if long and target not in BY_ADMINISTRATORS:
            found[str(field)] = long
    assert found == {}


NODE_PORTS = 2768
PORTS = {
    "of a few node ports, in many protocols": [
        {"name": f"p{n}", "port": 80, "protocol": f"P{n}"} for n in range(MOST_ITEMS)
    ],
    "of more node ports than there are": [{"name": f"p{n}", "port": n + 1} for n in range(MOST_ITEMS)],
    "of one requested node port, in many protocols": [
        {"name": f"p{n}", "port": 80, "protocol": f"P{n}", "nodePort": 30080} for n in range(MOST_ITEMS)
    ],
}


@pytest.mark.parametrize("ports", list(PORTS))
@pytest.mark.asyncio(loop_scope="module")
async def test_no_step_of_a_write_grows_with_the_node_ports_of_a_service(server: ApiUnderTest, ports: str) -> None:
    writes = Writes(server, FIELDS["services"][0])
    small = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "few-ports"},
        "spec": {"ports": [{"port": 80}]},
    }
    assert await writes.send("create", small, dry_run=False) == 201
    writes.longest.clear()
    spec = {"type": "NodePort", "ports": PORTS[ports]}
    await writes.send_all(small | {"metadata": {"name": "many-ports"}, "spec": spec}, "few-ports")
    assert await writes.send("delete", {}, "few-ports", dry_run=False) == 200
    most = MOST_LINES + 4 * NODE_PORTS  # what a write that is refused had claimed is given back at once
    assert {verb: lines for verb, lines in writes.longest.items() if lines > most} == {}
