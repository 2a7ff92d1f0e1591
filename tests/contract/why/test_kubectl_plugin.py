"""`kubectl wherry why` with the real kubectl, and kubeconfigs of several files with credential plugins."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.broken_clusters import pod
from wherry.testing import AsyncCluster

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 60


@pytest.fixture
async def cluster() -> AsyncIterator[AsyncCluster]:
    async with AsyncCluster(1) as found:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        await found.apply(space)
        await found.wait("serviceaccount/default", lambda _: True, namespace="shop")
        await found.apply(pod(envFrom=[{"configMapRef": {"name": "settings"}}]), namespace="shop")
        await found.wait("pod/web", lambda one: "CreateContainerConfigError" in str(one), namespace="shop")
        yield found


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the plugin, linked as scripts/up does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "wherry").write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom wherry.main import main\nmain()\n"
    )
    (folder / "wherry").chmod(0o755)
    (folder / "kubectl-wherry").symlink_to("wherry")
    return folder


async def run(programs: Path, *argv: str, kubeconfig: str = "", status: int = 0) -> str:
    assert shutil.which("kubectl"), "these tests need kubectl"
    variables = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(programs),
        "KUBECONFIG": kubeconfig,
    }
    process = await asyncio.create_subprocess_exec(
        *argv, env=variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LIMIT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == status, output.decode()
    return output.decode()


def read(cluster: AsyncCluster) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    return document


def write(path: Path, document: dict[str, Any], **more: Any) -> Path:
    path.write_text(yaml.safe_dump({**document, **more}))
    return path


async def test_kubectl_runs_the_plugin_with_its_own_options(
    cluster: AsyncCluster, programs: Path, tmp_path: Path
) -> None:
    given = read(cluster)
    context = given["contexts"][0]
    other = {"name": "other", "context": {**context["context"], "namespace": "shop"}}
    file = write(tmp_path / "config", given, contexts=[context, other])
    why, cause = ("kubectl", "wherry", "why", "pod/web"), "cause: container app uses the configmap settings"
    assert cause in await run(programs, *why, "-n", "shop", kubeconfig=str(file))
    assert cause in await run(programs, *why, "--namespace=shop", "--kubeconfig", str(file))
    assert cause in await run(programs, *why, "--context", "other", "--kubeconfig", str(file))
    assert "there is no pod web in namespace default" in await run(programs, *why, "--kubeconfig", str(file), status=1)
    assert "Usage: kubectl wherry why" in await run(programs, "kubectl", "wherry", "why", "--help")


async def test_the_command_follows_until_nothing_is_wrong(cluster: AsyncCluster, programs: Path) -> None:
    argv = ("wherry", "why", "pod/web", "-n", "shop", "--follow", "-o", "json")
    following = asyncio.create_task(run(programs, *argv, kubeconfig=str(cluster.kubeconfig)))
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    await cluster.apply(settings, namespace="shop")
    text = await following
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    assert found[-1]["causes"] == [] and found[-1]["state"].startswith("Ready")


async def test_several_files_and_a_credential_plugin_are_what_kubectl_makes_of_them(
    cluster: AsyncCluster, programs: Path, tmp_path: Path
) -> None:
    given = read(cluster)
    user, context = given["users"][0], given["contexts"][0]
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": _pem(user["user"]["client-certificate-data"]),
            "clientKeyData": _pem(user["user"]["client-key-data"]),
        },
    }
    login = tmp_path / "login"
    login.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(credential)}\nEND\n")
    login.chmod(0o755)
    settings = {"apiVersion": credential["apiVersion"], "command": "./login", "interactiveMode": "Never"}
    first = write(tmp_path / "first", {"users": [{"name": user["name"], "user": {"exec": settings}}]})
    wrong = {"name": context["name"], "context": {**context["context"], "namespace": "nowhere"}}
    third = write(tmp_path / "third", {}, contexts=[wrong], clusters=[], users=[], **{"current-context": "nothing"})
    second = write(
        tmp_path / "second", given, contexts=[{**context, "context": {**context["context"], "namespace": "shop"}}]
    )
    files = os.pathsep.join(map(str, (tmp_path / "missing", first, second, third)))
    assert "web" in await run(programs, "kubectl", "get", "pods", kubeconfig=files)
    assert "configmap settings" in await run(programs, "kubectl", "wherry", "why", "pod/web", kubeconfig=files)
    login.write_text("#!/bin/sh\necho no ticket >&2\nexit 4\n")
    assert "no ticket\nwherry: the credential plugin" in await run(
        programs, "wherry", "why", "pod/web", kubeconfig=files, status=1
    )


def _pem(text: str) -> str:
    return base64.b64decode(text).decode()
