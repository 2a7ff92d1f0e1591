"""Names of images in other spellings: the agent, the fake and a real containerd mean the same image by each."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.images.names import with_default_tag, with_registry
from cri import errors
from cri.client import Client
from cri.fake import FakeRuntime
from tests.support import images
from tests.support.containerd import Containerd, start_containerd

DIGEST = "sha256:" + "0" * 64
REPOSITORIES = (
    *("app", "library/app", "team/app", "team/library/app"),
    *("docker.io/app", "docker.io/team/app", "index.docker.io/app", "index.docker.io/team/app"),
    *("registry-1.docker.io/app", "index.docker.io:1/app", "team/index.docker.io/app", "docker.io:1/app"),
    *("localhost/app", "localhost:1/app", "127.0.0.1:1/app", "[::1]:1/app"),
    *("Team/app", "Docker.io/app", "LOCALHOST/app", "a-b/app", "r.test/app", "r.test/a/b/c"),
)
NAMES = [f"{repository}{suffix}" for repository in REPOSITORIES for suffix in ("", ":1", f"@{DIGEST}", f":1@{DIGEST}")]
REFUSED = [name for name in NAMES if name.startswith(("Team/", "LOCALHOST/", "[::1]"))]
"""Names that containerd before 1.7 refuses."""


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    with start_containerd(f"spellings-{os.getpid()}", load=[images.busybox()]) as daemon:
        yield daemon


@pytest.fixture(params=["fake", "containerd"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    if request.param == "fake":
        async with FakeRuntime(tmp_path / "fake.sock") as fake:
            fake.images.add(images.BUSYBOX_IMAGE)
            async with Client(fake.endpoint) as client:
                yield client
        return
    daemon: Containerd = request.getfixturevalue("containerd")
    async with Client(daemon.endpoint) as client:
        yield client


@pytest.mark.parametrize("name", NAMES)
async def test_a_runtime_pulls_an_image_under_the_name_that_the_agent_expects_in_its_list(
    client: Client, name: str
) -> None:
    """No registry can be reached: the error contains the name that the image would have got."""
    with pytest.raises(errors.CRIError) as failed:
        await client.images.pull_image(with_default_tag(name))
    if name in REFUSED and "failed to parse image reference" in str(failed.value):
        return
    found = re.search(r'failed to pull and unpack image "(\S+)"', str(failed.value))
    assert found is not None and found[1] == with_registry(with_default_tag(name)), str(failed.value)


@pytest.mark.parametrize("registry", ["", "library/", "docker.io/", "docker.io/library/", "index.docker.io/"])
async def test_an_image_is_found_by_each_spelling_of_its_name(client: Client, registry: str) -> None:
    found = await client.images.image_status(registry + images.BUSYBOX_IMAGE.rpartition("/")[2])
    assert found is not None and found.repo_tags == [images.BUSYBOX_IMAGE]
