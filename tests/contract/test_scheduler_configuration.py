"""Profiles and extenders through a real API server: an extender is a real HTTP server that notes what it is asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from control.scheduler import extender
from control.scheduler import main as role
from control.scheduler.configuration import SchedulerConfig, parse
from control.scheduler.extender import Extender
from control.scheduler.framework import BindingFailed
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1, scheduling_v1
from kube.client import Client
from tests.support.control import api_server
from tests.support.hollow import HollowNodes, eventually, running

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Beside:
    """An extender's HTTP server; `answers` are by verb, functions of the message."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.received: list[tuple[str, Any]] = []
        self.status = 200
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        message, verb = await request.json(), request.path.strip("/")
        self.received.append((verb, message))
        answer = self.answers[verb](message)
        if hasattr(answer, "__await__"):
            answer = await answer
        return web.json_response(answer, status=self.status)

    def of(self, verb: str) -> list[Any]:
        return [message for requested, message in self.received if requested == verb]


@pytest.fixture
async def beside() -> AsyncIterator[Beside]:
    made = Beside()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/{verb}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@contextlib.asynccontextmanager
async def scheduling(directory: Path, config: SchedulerConfig, extra: Any = None) -> AsyncIterator[Client]:
    """Run a server with three hollow nodes and a scheduler."""
    async with api_server(directory) as server:
        client = server.client()
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
        nodes = HollowNodes(client)
        async with running(nodes.run()):
            for name in ("n0", "n1", "n2"):
                await nodes.register(name)
                found = await client.get(core_v1.Node, name)
                found.spec.taints = []
                await client.update(found)
            async with running(role.run(client, config, extra=extra)):
                yield client


def pod(name: str, scheduler: str = "", **spec: Any) -> core_v1.Pod:
    container = core_v1.Container(name="c", image="x", **spec.pop("container", {}))
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PodSpec(containers=[container], scheduler_name=scheduler or None, **spec),
    )


async def node_of(client: Client, name: str) -> str | None:
    return (await client.get(core_v1.Pod, name, "default")).spec.node_name


async def message_of(client: Client, name: str) -> str:
    found = await client.get(core_v1.Pod, name, "default")
    return next((c.message or "" for c in found.status.conditions if c.type == "PodScheduled"), "")


def names(message: Any) -> set[str]:
    if message["NodeNames"] is not None:
        return set(message["NodeNames"])
    return {item["metadata"]["name"] for item in message["Nodes"]["items"]}


async def test_each_profile_serves_its_name_and_nobody_else(tmp_path: Path) -> None:
    term = '{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: ["n2"]}]}'
    added = f"{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}"
    config = parse(
        HEAD
        + f"""
profiles:
- {{}}
- schedulerName: fixed
  pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {added}}}}}]
"""
    )
    async with scheduling(tmp_path, config) as client:
        for number in range(4):
            await client.create(pod(f"fixed-{number}", "fixed"))
        await client.create(pod("usual"))
        await client.create(pod("other", "somebody-else"))
        await eventually(lambda: node_of(client, "usual"))
        for number in range(4):
            assert await eventually(lambda number=number: node_of(client, f"fixed-{number}")) == "n2"  # type: ignore[misc]
        assert await node_of(client, "other") is None

        async def reported() -> set[str]:
            events = (await client.list(core_v1.Event, "default")).items
            found = {e.source.component or "" for e in events if e.reason == "Scheduled" and e.source}
            return found if len(found) == 2 else set()

        assert await eventually(reported) == {"default-scheduler", "fixed"}


async def test_an_extender_filters_and_scores(tmp_path: Path, beside: Beside) -> None:
    beside.answers = {
        "filter": lambda m: {"NodeNames": [n for n in m["NodeNames"] if n != "n0"], "FailedNodes": {"n0": "too cold"}},
        "prioritize": lambda m: [{"Host": n, "Score": 10 if n == "n2" else 0} for n in m["NodeNames"]],
    }
    text = (
        f"extenders: [{{urlPrefix: {beside.url}, filterVerb: filter, prioritizeVerb: prioritize, weight: 10, "
        "nodeCacheCapable: true}]"
    )
    async with scheduling(tmp_path, parse(HEAD + text)) as client:
        await client.create(pod("p"))
        assert await eventually(lambda: node_of(client, "p")) == "n2"
        requested = beside.of("filter")[0]
        assert (names(requested), requested["Pod"]["metadata"]["name"]) == ({"n0", "n1", "n2"}, "p")
        assert names(beside.of("prioritize")[0]) == {"n1", "n2"}


async def test_an_extender_that_rejects_all_nodes_is_named_and_called_again(tmp_path: Path, beside: Beside) -> None:
    open_now: list[bool] = []

    def judge(message: Any) -> Any:
        if open_now:
            return {"Nodes": message["Nodes"]}
        return {"Nodes": {"items": []}, "FailedNodes": dict.fromkeys(names(message), "too cold")}

    beside.answers = {"filter": judge}
    text = f"extenders: [{{urlPrefix: {beside.url}, filterVerb: filter}}]"
    async with scheduling(tmp_path, parse(HEAD + text)) as client:
        await client.create(pod("p"))
        output = await eventually(lambda: message_of(client, "p"))
        assert output.startswith("0/3 nodes are available: 3 too cold.")
        open_now.append(True)
        node = await client.get(core_v1.Node, "n0")
        node.metadata.labels["weather"] = "fair"
        await client.update(node)
        assert await eventually(lambda: node_of(client, "p"))


async def test_only_pods_with_its_resources_go_to_an_extender_that_manages_some(tmp_path: Path, beside: Beside) -> None:
    beside.answers = {"filter": lambda m: {"Nodes": m["Nodes"]}}
    managed = "[{name: example.com/gpu, ignoredByScheduler: true}]"
    text = f"extenders: [{{urlPrefix: {beside.url}, filterVerb: filter, managedResources: {managed}}}]"
    resources = core_v1.ResourceRequirements(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"})
    async with scheduling(tmp_path, parse(HEAD + text)) as client:
        await client.create(pod("plain"))
        await eventually(lambda: node_of(client, "plain"))
        assert beside.received == []
        await client.create(pod("special", container={"resources": resources}))
        # No node has the resource, but it is the extender's to count.
        assert await eventually(lambda: node_of(client, "special"))
        assert [m["Pod"]["metadata"]["name"] for m in beside.of("filter")] == ["special"]


@pytest.mark.parametrize("ignorable", [True, False])
async def test_an_extender_that_fails_stops_scheduling_unless_it_may_be_ignored(
    tmp_path: Path, beside: Beside, ignorable: bool
) -> None:
    beside.answers = {"filter": lambda m: {}}
    beside.status = 500
    text = f"extenders: [{{urlPrefix: {beside.url}, filterVerb: filter, ignorable: {str(ignorable).lower()}}}]"
    async with scheduling(tmp_path, parse(HEAD + text)) as client:
        await client.create(pod("p"))
        if ignorable:
            assert await eventually(lambda: node_of(client, "p"))
            return
        output = await eventually(lambda: message_of(client, "p"))
        assert output == f"failed filter with extender at URL {beside.url}/filter, code 500"
        beside.status, beside.answers = 200, {"filter": lambda m: {"Nodes": m["Nodes"]}}
        assert await eventually(lambda: node_of(client, "p"))


async def test_an_answer_of_an_extender_that_is_too_long_is_not_read(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender, "ANSWER_LIMIT", 1000)
    (config,) = parse(f"{HEAD}extenders: [{{urlPrefix: {beside.url}, prioritizeVerb: score}}]").extenders
    requested = Extender(config)
    beside.answers = {"score": lambda m: [{"Host": "n", "Score": 1}] + [{"Host": "x" * 100, "Score": 0}] * length}
    length, info = 5, PodInfo(pod("p"))
    try:
        assert (await requested.prioritize(info, []))["n"] > 0
        length = 50
        with pytest.raises(extender.ExtenderError, match=r"extender at URL .*/score: the answer is longer than"):
            await requested.prioritize(info, [])
    finally:
        await requested.close()


async def test_an_extender_binds(tmp_path: Path, beside: Beside) -> None:
    text = f"extenders: [{{urlPrefix: {beside.url}, bindVerb: bind}}]"
    async with scheduling(tmp_path, parse(HEAD + text)) as client:

        async def bind(message: Any) -> Any:
            target = core_v1.ObjectReference(kind="Node", name=message["Node"])
            meta = meta_v1.ObjectMeta(name=message["PodName"], namespace=message["PodNamespace"], uid=message["PodUID"])
            binding = core_v1.Binding(api_version="v1", kind="Binding", metadata=meta, target=target)
            await client.post(core_v1.Pod, message["PodName"], message["PodNamespace"], "binding", binding)
            return {"Error": ""}

        beside.answers = {"bind": bind}
        await client.create(pod("p"))
        assert await eventually(lambda: node_of(client, "p"))
        assert len(beside.of("bind")) == 1


async def test_an_extender_may_change_the_preemption_victims(tmp_path: Path, beside: Beside) -> None:
    """All three nodes are full; the extender agrees with the victims on one of them only."""
    chosen: list[str] = []

    def agree(message: Any) -> Any:
        victims = message["NodeNameToVictims"]
        if not chosen:
            chosen.append(sorted(victims)[-1])
        kept = victims[chosen[0]]
        uids = [{"UID": p["metadata"]["uid"]} for p in kept["Pods"]]
        return {"NodeNameToMetaVictims": {chosen[0]: {"Pods": uids, "NumPDBViolations": 0}}}

    beside.answers = {"preempt": agree}
    text = f"extenders: [{{urlPrefix: {beside.url}, preemptVerb: preempt}}]"
    async with scheduling(tmp_path, parse(HEAD + text)) as client:
        allocatable = (await client.get(core_v1.Node, "n0")).status.allocatable["cpu"]
        all_of_it = {"resources": core_v1.ResourceRequirements(requests={"cpu": allocatable})}
        for number in range(3):
            await client.create(pod(f"low-{number}", container=all_of_it, termination_grace_period_seconds=0))
        for number in range(3):
            await eventually(lambda number=number: node_of(client, f"low-{number}"))  # type: ignore[misc]
        await client.create(pod("high", container=all_of_it, priority_class_name="system-cluster-critical"))
        assert await eventually(lambda: node_of(client, "high")) == chosen[0]
        assert len(beside.of("preempt")[0]["NodeNameToVictims"]) == 3


async def test_an_external_plugin_runs_permit_and_postbind(tmp_path: Path) -> None:
    """The first leave is refused, the second given: the pod is placed by then, and what was kept is given back."""

    class Turnstile:
        name, weight = "Turnstile", 0
        tries, kept, bound = 0, 0, 0

        def __init__(self, args: Any) -> None:
            Turnstile.tries = Turnstile.kept = Turnstile.bound = 0

        def reserve(self, info: Any, node: Any) -> None:
            Turnstile.kept += 1

        def unreserve(self, info: Any) -> None:
            Turnstile.kept -= 1

        async def permit(self, info: Any, node: str) -> None:
            Turnstile.tries += 1
            if Turnstile.tries == 1:
                raise BindingFailed("come again")

        def post_bind(self, info: Any, node: str) -> None:
            Turnstile.bound += 1

    text = "profiles: [{plugins: {multiPoint: {enabled: [{name: Turnstile}]}}}]"
    async with scheduling(tmp_path, parse(HEAD + text), {"Turnstile": Turnstile}) as client:
        await client.create(pod("p"))
        assert await eventually(lambda: node_of(client, "p"))

        async def settled() -> bool:
            return (Turnstile.tries, Turnstile.bound, Turnstile.kept) == (2, 1, 1)

        await eventually(settled)


async def test_a_more_important_pod_takes_over_the_room_that_is_being_made_for_a_lesser_one(tmp_path: Path) -> None:
    """The victim cannot go for now, so that both wait for its room."""
    async with scheduling(tmp_path, SchedulerConfig()) as client:
        for name, priority in (("mid", 10), ("high", 20)):
            metadata = meta_v1.ObjectMeta(name=name)
            await client.create(scheduling_v1.PriorityClass(metadata=metadata, value=priority))
        allocatable = (await client.get(core_v1.Node, "n0")).status.allocatable["cpu"]
        whole = {"resources": core_v1.ResourceRequirements(requests={"cpu": allocatable})}
        there = {"kubernetes.io/hostname": "n0"}
        low = pod("low", container=whole, node_selector=there, termination_grace_period_seconds=0)
        low.metadata.finalizers = ["example.com/held"]
        await client.create(low)
        await eventually(lambda: node_of(client, "low"))

        async def nominated(name: str) -> str | None:
            return (await client.get(core_v1.Pod, name, "default")).status.nominated_node_name

        await client.create(pod("mid", container=whole, node_selector=there, priority_class_name="mid"))
        assert await eventually(lambda: nominated("mid")) == "n0"
        await client.create(pod("high", container=whole, node_selector=there, priority_class_name="high"))
        assert await eventually(lambda: nominated("high")) == "n0"

        async def displaced() -> bool:
            return await nominated("mid") is None

        await eventually(displaced)
        free = {"metadata": {"finalizers": None}}
        await client.patch(core_v1.Pod, "low", "default", free)
        assert await eventually(lambda: node_of(client, "high")) == "n0"
        assert await node_of(client, "mid") is None
