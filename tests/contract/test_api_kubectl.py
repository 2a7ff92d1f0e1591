"""The unmodified kubectl against the bare API server: no node, no controllers, so that only the server is asked."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kube import process
from kube.process import Result
from tests.support.control import ApiUnderTest, api_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, labels: {tier: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield api


async def get(server: ApiUnderTest, *what: str) -> dict:
    found: dict = json.loads((await server.kubectl("get", *what, "-o", "json")).stdout)
    return found


async def refused(server: ApiUnderTest, *arguments: str, input: str = "") -> str:
    result: Result = await server.kubectl(*arguments, input=input, check=False)
    assert result.returncode != 0, result.stdout
    return result.stderr


async def test_create_sends_protobuf_and_gets_the_accepted_encoding(server: ApiUnderTest) -> None:
    await server.kubectl("create", "configmap", "settings", "--from-literal=colour=red", "--from-literal=empty=")
    assert (await get(server, "configmap", "settings"))["data"] == {"colour": "red", "empty": ""}
    await server.kubectl("create", "secret", "generic", "keys", "--from-literal=k=v")
    assert (await get(server, "secret", "keys"))["data"] == {"k": "dg=="}
    await server.kubectl("create", "deployment", "none", "--image=nginx:1", "--replicas=0", "--port=80")
    found = await get(server, "deployment", "none")
    assert found["spec"]["replicas"] == 0, "a zero that was meant is no default"
    assert found["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    await server.kubectl("create", "service", "nodeport", "ports", "--tcp=80:8080")
    port = (await get(server, "service", "ports"))["spec"]["ports"][0]
    assert port["targetPort"] == 8080 and 30000 <= port["nodePort"] <= 32767
    await server.kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=*/5 * * * *", "--", "date")
    assert (await get(server, "cronjob", "tick"))["spec"]["schedule"] == "*/5 * * * *"
    await server.kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,deployments.apps")
    rules = (await get(server, "role", "reader"))["rules"]
    assert {r["apiGroups"][0] for r in rules} == {"", "apps"}
    await server.kubectl("create", "ingress", "way", "--rule=host.example/path=ports:80")
    rule = (await get(server, "ingress", "way"))["spec"]["rules"][0]
    assert rule["host"] == "host.example" and rule["http"]["paths"][0]["path"] == "/path"
    await server.kubectl("create", "quota", "some", "--hard=cpu=1,pods=5")
    assert (await get(server, "quota", "some"))["spec"]["hard"] == {"cpu": "1", "pods": "5"}


async def test_apply_on_the_clients_and_on_the_servers_side(server: ApiUnderTest) -> None:
    text = DEPLOYMENT % "applied"
    assert "created" in (await server.kubectl("apply", "-f", "-", input=text)).stdout
    assert "unchanged" in (await server.kubectl("apply", "-f", "-", input=text)).stdout
    scaled = text.replace("replicas: 2", "replicas: 3")
    assert "configured" in (await server.kubectl("apply", "-f", "-", input=scaled)).stdout
    assert (await get(server, "deployment", "applied"))["spec"]["replicas"] == 3
    text = DEPLOYMENT % "server-side"
    out = await server.kubectl("apply", "--server-side", "-f", "-", input=text)
    assert out.stdout == "deployment.apps/server-side serverside-applied\n"
    await server.kubectl("scale", "deployment", "server-side", "--replicas=5")
    message = await refused(server, "apply", "--server-side", "-f", "-", input=text)
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas' in message
    await server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    assert (await get(server, "deployment", "server-side"))["spec"]["replicas"] == 2


async def test_everyday_changes(server: ApiUnderTest) -> None:
    await server.kubectl("apply", "-f", "-", input=DEPLOYMENT % "daily")
    await server.kubectl("label", "deployment", "daily", "team=blue")
    await server.kubectl("annotate", "deployment", "daily", "note=x")
    await server.kubectl("set", "image", "deployment/daily", "c=nginx:2")
    await server.kubectl("set", "env", "deployment/daily", "A=B")
    await server.kubectl(
        "patch", "deployment", "daily", "--type=json", '-p=[{"op":"remove","path":"/metadata/labels/tier"}]'
    )
    found = await get(server, "deployment", "daily")
    assert found["metadata"]["labels"] == {"team": "blue"} and found["metadata"]["annotations"]["note"] == "x"
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "nginx:2" and container["env"] == [{"name": "A", "value": "B"}]
    message = await refused(server, "label", "deployment", "daily", "team=red")
    assert "'team' already has a value (blue)" in message
    # kubectl names the namespace since 1.34.
    deleted = (await server.kubectl("delete", "deployment", "daily")).stdout
    assert deleted.removesuffix(" from default namespace\n").rstrip() == 'deployment.apps "daily" deleted'


async def test_what_it_prints_comes_from_the_server(server: ApiUnderTest) -> None:
    await server.kubectl("apply", "-f", "-", input=DEPLOYMENT % "printed")
    lines = (await server.kubectl("get", "deployment", "printed", "-o", "wide")).stdout.splitlines()
    assert lines[0].split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert lines[1].split()[:4] == ["printed", "0/2", "0", "0"] and lines[1].split()[5:] == ["c", "nginx:1", "app=web"]
    scale = (await server.kubectl("get", "deployment", "printed", "--subresource=scale")).stdout.splitlines()
    assert scale[0].split() == ["NAME", "DESIRED", "AVAILABLE", "AGE"] and scale[1].split()[:3] == ["printed", "2", "0"]
    argv = ["kubectl", "--kubeconfig", str(server.kubeconfig()), "get", "namespaces", "--watch"]
    watching = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert watching.stdout is not None
        async with asyncio.timeout(60):
            assert (await watching.stdout.readline()).split() == [b"NAME", b"STATUS", b"AGE"]
            while b"kube-system" not in await watching.stdout.readline():
                pass
    finally:
        watching.terminate()
        await watching.wait()
    nothing = await server.kubectl("get", "pods", "-n", "kube-public")
    assert nothing.stderr == "No resources found in kube-public namespace.\n"


async def test_bad_input_is_refused_in_upstreams_words(server: ApiUnderTest) -> None:
    text = DEPLOYMENT % "bad"
    message = await refused(server, "create", "-f", "-", input=text.replace("replicas: 2", "replicas: two"))
    assert "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32" in message
    message = await refused(server, "create", "-f", "-", input=text.replace("replicas: 2", "replicaz: 2"))
    assert 'strict decoding error: unknown field "spec.replicaz"' in message and message.startswith(
        "Error from server (BadRequest)"
    )
    warned = await server.kubectl(
        "create", "--dry-run=server", "--validate=warn", "-f", "-", input=text.replace("replicas: 2", "replicaz: 2")
    )
    assert 'Warning: unknown field "spec.replicaz"' in warned.stderr and "created (server dry run)" in warned.stdout
    message = await refused(
        server, "create", "-f", "-", input=text.replace("app: web}}\n  template", "app: other}}\n  template")
    )
    assert "`selector` does not match template `labels`" in message
    message = await refused(server, "create", "namespace", "Not_A_Name")
    assert (
        'The Namespace "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123'
        in message
    )
    assert "NotFound" in await refused(server, "get", "pod", "nothing")
    assert (await get(server, "deployments", "-l", "name=bad"))["items"] == []


async def test_who_may_do_what(server: ApiUnderTest) -> None:
    assert (await server.kubectl("auth", "can-i", "delete", "pods")).stdout == "yes\n"
    result = await server.kubectl("auth", "can-i", "delete", "pods", "--as=jane", check=False)
    assert result.stdout == "no\n"
    who = json.loads((await server.kubectl("auth", "whoami", "-o", "json")).stdout)
    assert who["status"]["userInfo"]["username"] == "kubernetes-admin"
    message = await refused(server, "get", "secrets", "--as=jane")
    assert (
        'secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace' in message
    )
    token = (await server.kubectl("create", "token", "default", "--duration=10m")).stdout.strip()
    config = str(server.kubeconfig("nobody", ()))
    result = await server.kubectl("--kubeconfig", config, "--token", token, "auth", "whoami", check=False)
    assert "nobody" in result.stdout or "system:serviceaccount:default:default" in result.stdout


async def test_discovery_and_documentation(server: ApiUnderTest) -> None:
    names = (await server.kubectl("api-resources", "-o", "name")).stdout.split()
    assert {"pods", "deployments.apps", "roles.rbac.authorization.k8s.io"} <= set(names)
    short = (await server.kubectl("api-resources", "--api-group=apps")).stdout
    assert any(
        line.split() == ["deployments", "deploy", "apps/v1", "true", "Deployment"] for line in short.splitlines()
    )
    again = (await server.kubectl("api-resources", "-o", "name")).stdout.split()
    assert again == names, "what a cache kept is told to be current, not emptied"
    assert "apps/v1\n" in (await server.kubectl("api-versions")).stdout
    explained = (await server.kubectl("explain", "deployment.spec.replicas")).stdout
    assert "FIELD: replicas <integer>" in explained
    version = json.loads((await server.kubectl("version", "-o", "json")).stdout)
    assert version["serverVersion"]["minor"] == "36"
    assert "readyz check passed" in (await server.kubectl("get", "--raw", "/readyz?verbose")).stdout


async def test_edit_changes_what_the_editor_left(server: ApiUnderTest, tmp_path: Path) -> None:
    await server.kubectl("create", "configmap", "edited", "--from-literal=k=old")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/k: old/k: new/" "$1"\n')
    editor.chmod(0o755)
    argv = ["kubectl", "--kubeconfig", str(server.kubeconfig()), "edit", "configmap", "edited"]
    result = await process.run(argv, env={"KUBE_EDITOR": str(editor)})
    assert result.stdout == "configmap/edited edited\n"
    assert (await get(server, "configmap", "edited"))["data"] == {"k": "new"}
