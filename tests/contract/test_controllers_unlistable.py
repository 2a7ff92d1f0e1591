"""Controllers on a real server beside kinds that cannot be listed, each kind that controllers follow in turn."""

from __future__ import annotations

import functools
from pathlib import Path

from control.controllers import manager
from control.controllers.context import Context
from kube import resources
from kube.api import apps_v1, batch_v1, core_v1, meta_v1
from kube.client import Client
from tests.support.clock import FakeClock
from tests.support.control import api_server
from tests.support.hollow import eventually, running
from tests.support.unlistable import Unlistable


def followed(client: Client) -> set[str]:
    """Return the plurals of all kinds that controllers follow."""
    context = Context(client, FakeClock())
    for make in manager.CONTROLLERS.values():
        make(context, manager.ControllerConfig())
    return {resources.of(kind).plural for kind, _, _ in context.informers._informers}


def deployment(name: str) -> apps_v1.Deployment:
    labels = {"app": name}
    return apps_v1.Deployment(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=apps_v1.DeploymentSpec(
            replicas=1,
            selector=meta_v1.LabelSelector(match_labels=labels),
            template=core_v1.PodTemplateSpec(
                metadata=meta_v1.ObjectMeta(labels=labels),
                spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")]),
            ),
        ),
    )


async def pods_of(client: Client, selector: str) -> int:
    return len((await client.list(core_v1.Pod, "default", label_selector=selector)).items)


async def test_whatever_kind_cannot_be_listed_deployments_that_do_not_need_it_get_their_pods(tmp_path: Path) -> None:
    needed = {"deployments", "replicasets", "pods"}
    async with api_server(tmp_path) as server:
        client = server.client()
        async with running(manager.run(client, manager.ControllerConfig())):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
        kinds = sorted(followed(client) - needed)
        assert len(kinds) > 25
        for plural in kinds:
            unlistable = Unlistable(server.client().transport)
            unlistable.broken = {plural}
            async with running(manager.run(Client(unlistable), manager.ControllerConfig())):
                await client.create(deployment(f"without-{plural}"))
                await eventually(functools.partial(pods_of, client, f"app=without-{plural}"))


async def test_a_held_controller_does_its_work_when_its_kind_can_be_listed_again(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        client = server.client()
        unlistable = Unlistable(server.client().transport)
        unlistable.broken = {"jobs"}
        async with running(manager.run(Client(unlistable), manager.ControllerConfig())):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            container = core_v1.Container(name="c", image="i")
            template = core_v1.PodTemplateSpec(spec=core_v1.PodSpec(containers=[container], restart_policy="Never"))
            meta = meta_v1.ObjectMeta(name="j", namespace="default")
            await client.create(batch_v1.Job(metadata=meta, spec=batch_v1.JobSpec(template=template)))
            await client.create(deployment("web"))
            await eventually(lambda: pods_of(client, "app=web"))
            assert await pods_of(client, "job-name=j") == 0
            unlistable.broken = set()
            await eventually(lambda: pods_of(client, "job-name=j"))


async def test_a_namespace_is_emptied_of_all_that_can_be_listed_and_says_what_cannot(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        client = server.client()
        unlistable = Unlistable(server.client().transport)
        unlistable.broken = {"secrets"}
        async with running(manager.run(Client(unlistable), manager.ControllerConfig())):
            await client.create(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="going")))
            for kind in (core_v1.ConfigMap, core_v1.Secret):
                await client.create(kind(metadata=meta_v1.ObjectMeta(name="o", namespace="going")))
            await client.delete(core_v1.Namespace, "going")

            async def emptied() -> bool:
                return not (await client.list(core_v1.ConfigMap, "going")).items

            async def reported() -> bool:
                conditions = (await client.get(core_v1.Namespace, "going")).status.conditions
                failed = [c.message or "" for c in conditions if c.type == "NamespaceDeletionContentFailure"]
                return any("secrets: " in message for message in failed)

            await eventually(emptied)
            await eventually(reported)
            assert (await client.get(core_v1.Secret, "o", "going")).metadata.name == "o"
            unlistable.broken = set()

            async def gone() -> bool:
                return "going" not in [n.metadata.name for n in (await client.list(core_v1.Namespace)).items]

            await eventually(gone)
