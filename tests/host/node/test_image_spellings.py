"""Private images of Docker Hub under its two names, pulled by a real containerd from a real registry that is its mirror."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cri.client import Client
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.image_pods import docker_hub_at, hub_secret, manager, outcome
from tests.support.image_records import made
from tests.support.registry import machine, registry

PORT = 5001
PRIVATE = ("team/private:1", "library/private:1")


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """Run a containerd to which a private registry is docker.io."""
    extra = docker_hub_at(tmp_path_factory.mktemp("hosts"), PORT)
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
