"""`wherry why` against upstream's control plane names the causes that it names on Wherry's, without the journal.

etcd and upstream's API server, controllers and scheduler run on the loopback device of a network namespace of their own. There
is no kubelet, so that the cases are those that need none; the node is an object alone. Opt-in: WHERRY_KUBERNETES names the
folder with the programs in bin.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kube import kubeconfig, pki_layout
from kube.client import Client
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.transport import HttpsTransport
from tests.conformance import daemon_flags
from tests.conformance.upstream import GIVEN
from tests.support.broken_clusters import Object, pod, workload
from tests.support.netns import Namespace, namespaces
from wherry.testing import AsyncCluster
from wherry.testing.async_objects import AsyncObjects
from wherry.testing.kubeconfig import kubeconfig_text
from wherry.testing.resources import Resources
from wherry.testing.timing.real import RealTime
from wherry.why import story
from wherry.why.model import Story

ADDRESS, PORT = "192.0.2.1", 6443
LIMIT_SECONDS, LOOK_SECONDS = 60.0, 0.3
API_SERVER, CONTROLLERS, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"


def object_of(api: str, kind: str, name: str, spec: Any = None, **metadata: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, **({"spec": spec} if spec else {})}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
SERVICE = {"selector": {"app": "wbe"}, "ports": [{"port": 80}]}
JOB = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "x"}]}}}
RULE = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}
INGRESS = {"ingressClassName": "none", "rules": [{"http": {"paths": [RULE]}}]}

CASES: dict[str, tuple[str, list[Object]]] = {
    "memory": ("pod/big", [pod("big", resources={"requests": {"memory": "640Gi"}})]),
    "selector": ("pod/ssd", [pod("ssd", spec={"nodeSelector": {"disk": "ssd"}})]),
    "gate": ("pod/gated", [pod("gated", spec={"schedulingGates": [{"name": "example.org/wait"}]})]),
    "claim": (
        "pod/full",
        [pod("full", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]})],
    ),
    "class": ("pvc/data", [object_of("v1", "PersistentVolumeClaim", "data", CLAIM)]),
    "account": ("deployment/robot", [workload("Deployment", "robot", pod_spec={"serviceAccountName": "robot"})]),
    "zero": ("deployment/none", [workload("Deployment", "none", spec={"replicas": 0})]),
    "paused": ("deployment/halt", [workload("Deployment", "halt", spec={"paused": True})]),
    "nodes": ("daemonset/gpu", [workload("DaemonSet", "gpu", pod_spec={"nodeSelector": {"gpu": "yes"}})]),
    "job": ("job/once", [object_of("batch/v1", "Job", "once", JOB)]),
    "service": (
        "service/web",
        [pod("web", spec={"nodeSelector": {"x": "y"}}), object_of("v1", "Service", "web", SERVICE)],
    ),
    "ingress": ("ingress/web", [object_of("networking.k8s.io/v1", "Ingress", "web", INGRESS)]),
}
CAUSES = {
    "memory": "it requests 640Gi of memory, and no node has more than 32Gi",
    "selector": "node node-1 has no label disk=ssd, which its nodeSelector asks for",
    "gate": "its scheduling gates (example.org/wait) have not been removed",
    "claim": "its volume v uses the PersistentVolumeClaim none, which does not exist",
    "class": "claim data names the StorageClass fast, which does not exist",
    "account": 'the API server refuses its pods: pods "robot-GENERATED" is forbidden: error looking up service account',
    "zero": "it is scaled to 0 (spec.replicas)",
    "paused": "its rollout is paused (spec.paused)",
    "nodes": "no node has the labels of its nodeSelector (gpu=yes)",
    "job": "it is suspended (spec.suspend)",
    "service": "its selector app=wbe selects no pod; the pods of pod/web have app=web",
    "ingress": "it names the IngressClass none, which does not exist",
}
"""Beginnings of the causes."""
NODE = object_of("v1", "Node", "node-1")
AMOUNTS = {"cpu": "4", "memory": "32Gi", "pods": "110"}
STATUS = {
    "status": {
        "capacity": AMOUNTS,
        "allocatable": AMOUNTS,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}],
    }
}


class Upstreams(AsyncObjects):
    """The objects of upstream's API server."""

    def __init__(self, client: Client) -> None:
        self._client, self._resources, self._time = client, Resources(client), RealTime()

    @property
    def client(self) -> Client:
        return self._client


@pytest.fixture
def programs() -> Path:
    folder = Path(os.environ.get(GIVEN, "")) / "bin"
    missing = [name for name in (API_SERVER, CONTROLLERS, SCHEDULER) if not os.access(folder / name, os.X_OK)]
    if missing or shutil.which("etcd") is None:
        pytest.skip(f"{GIVEN} names no folder with bin/{', bin/'.join(missing)}, or there is no etcd")
    return folder


@pytest.fixture
def upstream(programs: Path, tmp_path: Path) -> Iterator[tuple[Namespace, Path]]:
    """Upstream's control plane in a namespace, and the administrator's kubeconfig."""
    pki, config = tmp_path / "var/lib/wherry/pki", tmp_path / "admin.kubeconfig"
    keys = pki_layout.ensure(pki, now=SYSTEM.now(), hosts=[ADDRESS])
    config.write_text(kubeconfig_text(f"https://127.0.0.1:{PORT}", keys, SYSTEM.now()))
    site: Any = SimpleNamespace(prefix=tmp_path, kubeconfig=config)
    started: list[subprocess.Popen[bytes]] = []
    with namespaces(f"why-{uuid.uuid4().hex[:8]}") as (namespace,):
        namespace.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")

        def start(program: str, *flags: str) -> None:
            with (tmp_path / f"{Path(program).name}.log").open("wb") as log:
                argv = ("nsenter", f"--net={namespace.path}", program, *flags)
                started.append(subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

        try:
            start("etcd", *daemon_flags.etcd(site))
            start(str(programs / API_SERVER), *daemon_flags.api_server(pki, daemon_flags.ETCD, ADDRESS, PORT))
            namespace.inside(lambda: _ready(config), 120)
            grace = "--node-monitor-grace-period=1h"  # no kubelet renews the node's lease
            start(str(programs / CONTROLLERS), *daemon_flags.controllers(site), grace)
            start(str(programs / SCHEDULER), *daemon_flags.scheduler(site))
            yield namespace, config
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


@asynccontextmanager
async def _client(config: Path) -> AsyncIterator[Client]:
    client = Client(HttpsTransport(kubeconfig.load(config)))
    try:
        yield client
    finally:
        await client.close()


async def _ready(config: Path) -> None:
    async with _client(config) as client:
        while True:
            try:
                await client.call("GET", "/readyz")
                return
            except StatusError:
                await asyncio.sleep(LOOK_SECONDS)


async def _created(cluster: AsyncObjects) -> None:
    """Create a node that is Ready, and the cases."""
    while not await _exists(cluster, "serviceaccount/default"):
        await asyncio.sleep(LOOK_SECONDS)
    await cluster.create(NODE)
    await cluster.patch("node/node-1", STATUS, subresource="status")
    for _, objects in CASES.values():
        await cluster.apply(objects)


async def _stories(cluster: AsyncObjects) -> dict[str, Story]:
    found = {}
    for name, (ask, _) in CASES.items():
        kind, _, named = ask.partition("/")
        found[name] = await story.compose(cluster.client, kind, named, "default", SYSTEM.now())
    return found


async def _settled(cluster: AsyncObjects) -> dict[str, Story]:
    """Return the stories as soon as they have the expected causes; at the end of the time, as they are."""
    found: dict[str, Story] = {}
    for _ in range(int(LIMIT_SECONDS / LOOK_SECONDS)):
        found = await _stories(cluster)
        if all(_plain(each).startswith(CAUSES[name]) for name, each in found.items()):
            break
        await asyncio.sleep(LOOK_SECONDS)
    return found


async def _exists(cluster: AsyncObjects, reference: str) -> bool:
    return any(
        each["metadata"]["name"] == reference.partition("/")[2] for each in await cluster.list("serviceaccounts")
    )


def _plain(found: Story) -> str:
    """Return the most important cause and its fix without generated names; upstream's messages have their beginning."""
    cause = found.causes[-1] if found.causes else None
    text = f"{cause.text} -> {cause.fix}" if cause is not None else "no cause"
    return re.sub(r"-[a-z0-9]{8,10}(-[a-z0-9]{5}|-(?=\"))?(?![a-z0-9])", "-GENERATED", text)


@pytest.mark.timeout(300)
def test_causes_on_upstreams_control_plane_are_those_on_wherrys(upstream: tuple[Namespace, Path]) -> None:
    namespace, config = upstream

    async def there() -> dict[str, Story]:
        async with _client(config) as client:
            await _created(Upstreams(client))
            return await _settled(Upstreams(client))

    async def here() -> dict[str, Story]:
        async with AsyncCluster(0) as cluster:
            await _created(cluster)
            return await _settled(cluster)

    upstreams, wherrys = namespace.inside(there, 200), asyncio.run(here())
    for name, beginning in CAUSES.items():
        assert _plain(wherrys[name]).startswith(beginning), _plain(wherrys[name])
    assert {name: _plain(each) for name, each in upstreams.items()} == {n: _plain(each) for n, each in wherrys.items()}
    assert all(found.causes and found.causes[-1].fix for found in upstreams.values())
    unknown = {text for found in upstreams.values() for text in found.unknown}
    assert len(unknown) == 1 and re.search("journal", unknown.pop())
    assert all(found.moments for found in upstreams.values())
