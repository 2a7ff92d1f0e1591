"""Pods that use images of a real containerd by way of the agent's image manager."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agent.images.credentials.keyring import Keyring
from agent.images.image_access import ImageAccess
from agent.images.manager import ImageError, Images
from agent.metrics.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.messages import PodSandboxConfig
from kube.api import core_v1, meta_v1
from tests.support.registry import PASSWORD, USER


def docker_hub_at(hosts: Path, port: int) -> str:
    """Return a part of containerd's configuration in which a registry of this machine is docker.io."""
    (hosts / "docker.io").mkdir()
    server = f"http://127.0.0.1:{port}"
    (hosts / "docker.io/hosts.toml").write_text(
        f'server = "{server}"\n[host."{server}"]\n  capabilities = ["pull", "resolve"]\n'
    )
    return f'[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "{hosts}"\n'


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
