"""Private images of Docker Hub under its two names, pulled by a real containerd from a real registry that is its mirror."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images.credentials.keyring import Keyring
from agent.images.image_access import ImageAccess
from agent.images.manager import ImageError, Images
from agent.metrics.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.messages import PodSandboxConfig
from kube.api import core_v1, meta_v1
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.image_records import made
from tests.support.registry import PASSWORD, USER, machine, registry

PORT = 5001
PRIVATE = ("team/private:1", "library/private:1")


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """Run a containerd to which a private registry is docker.io."""
    hosts = tmp_path_factory.mktemp("hosts")
    (hosts / "docker.io").mkdir()
    server = f"http://127.0.0.1:{PORT}"
    (hosts / "docker.io/hosts.toml").write_text(
        f'server = "{server}"\n[host."{server}"]\n  capabilities = ["pull", "resolve"]\n'
    )
    extra = f'[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "{hosts}"\n'
    with (
        start_containerd(f"spelled-{os.getpid()}", load=[images.pause()], extra_config=extra) as daemon,
        registry(machine(daemon), PORT, private=True) as private,
    ):
        for name in PRIVATE:
            private.push(images.busybox_of(private.host, name))
        yield daemon


@pytest.fixture
async def client(containerd: Containerd) -> AsyncIterator[Client]:
    async with Client(containerd.endpoint) as client:
        yield client
        for image in await client.images.list_images():
            await client.images.remove_image(image.id)


def manager(client: Client, access: ImageAccess) -> Images:
    recorder, startup = SimpleNamespace(event=lambda *_, **__: None), SimpleNamespace(image_pulled=lambda *_: None)
    return Images(
        client,
        cast(Any, recorder),
        keyring=Keyring([]),
        access=access,
        metrics=KubeletMetrics(),
        startup=cast(Any, startup),
    )


async def outcome(made: Images, namespace: str, image: str, policy: str, *secrets: core_v1.Secret) -> str:
    """Return the ID that a pod gets, or the reason why it gets none."""
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace=namespace, uid=f"uid-{namespace}-{image}"))
    container = core_v1.Container(name="c", image=image, image_pull_policy=policy)
    try:
        return (await made.ensure(pod, container, "", secrets, PodSandboxConfig())).id
    except ImageError as error:
        return error.reason


def hub_secret() -> core_v1.Secret:
    auths = {"auths": {"https://index.docker.io/v1/": {"username": USER, "password": PASSWORD}}}
    return core_v1.Secret(
        metadata=meta_v1.ObjectMeta(name="hub", namespace="owner", uid="uid-hub"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()},
    )


@pytest.mark.parametrize(
    ("image", "spellings"),
    [
        (image, ("team/private:1", "docker.io/team/private:1", "index.docker.io/team/private:1"))
        for image in ("index.docker.io/team/private:1", "team/private:1")
    ]
    + [
        (image, ("private:1", "library/private:1", "docker.io/private:1", "index.docker.io/library/private:1"))
        for image in ("docker.io/private:1", "index.docker.io/private:1")
    ],
)
async def test_an_image_that_a_secret_of_docker_hub_pulled_is_closed_to_other_namespaces_under_every_name(
    client: Client, tmp_path: Path, image: str, spellings: tuple[str, ...]
) -> None:
    node = manager(client, made(tmp_path))
    assert await outcome(node, "other", image, "IfNotPresent") == "ErrImagePull", "the registry requires credentials"
    image_id = await outcome(node, "owner", image, "IfNotPresent", hub_secret())
    assert image_id.startswith("sha256:")
    (listed,) = [listed for listed in await client.images.list_images() if listed.id == image_id]
    for restarted in (False, True):
        if restarted:
            node = manager(client, made(tmp_path))
        for number, name in enumerate((*spellings, *listed.repo_tags, *listed.repo_digests)):
            namespace = f"other-{restarted}-{number}"
            assert await outcome(node, namespace, name, "Never") == "ErrImageNeverPull"
            assert await outcome(node, namespace, name, "IfNotPresent") == "ErrImagePull"
            assert await outcome(node, "owner", name, "Never", hub_secret()) == image_id
