"""`python -m control`: the three daemons as processes with upstream's command lines, together a control plane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from kube import pki_layout
from kube.kubeconfig import Access
from kube.process import run
from kube.transport import HttpsTransport
from tests.support.control import ADMIN

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.asynccontextmanager
async def daemon(name: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "control", name, *flags, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0, f"{name} ends in order"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def kubeconfig(directory: Path, server: str, keys: pki_layout.ClusterPKI, name: str, groups: tuple[str, ...]) -> Path:
    pair = keys.client(name, groups, datetime.now(UTC))
    pair.save(directory, name.replace(":", "-"))
    stem, path = directory / name.replace(":", "-"), directory / f"{name.replace(':', '-')}.kubeconfig"
    user = {"client-certificate": f"{stem}.crt", "client-key": f"{stem}.key"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": str(directory / "ca.crt")}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(config))
    return path


async def test_each_daemon_takes_upstreams_place(tmp_path: Path) -> None:
    keys = await asyncio.to_thread(pki_layout.ensure, tmp_path, now=datetime.now(UTC), hosts=("127.0.0.1",))
    port, health = free_port(), free_port()
    server = f"https://127.0.0.1:{port}"
    admin = kubeconfig(tmp_path, server, keys, *ADMIN)
    manager = kubeconfig(tmp_path, server, keys, "system:kube-controller-manager", ())
    policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
    (tmp_path / "audit.yaml").write_text(policy)
    scheduler = kubeconfig(tmp_path, server, keys, "system:kube-scheduler", ())
    serving = (
        f"--data-dir={tmp_path / 'data'}",
        f"--tls-cert-file={tmp_path / 'apiserver.crt'}",
        f"--tls-private-key-file={tmp_path / 'apiserver.key'}",
        f"--client-ca-file={tmp_path / 'ca.crt'}",
        f"--service-account-signing-key-file={tmp_path / 'sa.key'}",
        f"--service-account-key-file={tmp_path / 'sa.pub'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--enable-admission-plugins=AlwaysPullImages",
        f"--audit-policy-file={tmp_path / 'audit.yaml'}",
        f"--audit-log-path={tmp_path / 'audit.log'}",
    )
    controllers = (
        f"--kubeconfig={manager}",
        "--use-service-account-credentials",
        "--controllers=*,-job",
        "--bind-address=127.0.0.1",
        f"--secure-port={health}",
        f"--client-ca-file={tmp_path / 'ca.crt'}",
        "--authorization-always-allow-paths=/healthz,/livez*",
    )

    async def kubectl(*arguments: str, input: str = "") -> str:
        cache = f"--cache-dir={tmp_path / 'cache'}"
        argv = ["kubectl", "--kubeconfig", str(admin), cache, *arguments]
        return (await run(argv, input=input, check=False)).stdout

    async def eventually(wanted: str, *arguments: str) -> None:
        async with asyncio.timeout(60):
            while wanted not in await kubectl(*arguments):
                await asyncio.sleep(0.2)

    async with daemon("kube-apiserver", *serving):
        await eventually("ok", "get", "--raw", "/readyz")
        async with daemon("kube-controller-manager", *controllers):
            async with daemon("kube-scheduler", f"--kubeconfig={scheduler}", "--secure-port=0"):
                node = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": "n"},
                    "status": {
                        "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"},
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                }
                tolerations = [{"operator": "Exists"}]
                template = {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "tolerations": tolerations,
                        "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never"}],
                    },
                }
                deployment = {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "d"},
                    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
                }
                # Without its service account, the first pod would be refused, as upstream does.
                await eventually("serviceaccount/default", "get", "serviceaccounts", "-o", "name")
                made = {"apiVersion": "v1", "kind": "List", "items": [node, deployment]}
                await kubectl("create", "-f", "-", input=json.dumps(made))
                await kubectl(
                    "patch", "node", "n", "--subresource=status", "-p", json.dumps({"status": node["status"]})
                )
                path = "jsonpath={.items[*].spec.nodeName} {.items[*].spec.containers[*].imagePullPolicy}"
                await eventually("n Always", "get", "pods", "-o", path)
                leases = await kubectl("get", "leases", "-n", "kube-system", "-o", "name")
                assert "kube-controller-manager" in leases and "kube-scheduler" in leases
                transport = HttpsTransport(Access(server=f"https://127.0.0.1:{health}", insecure=True))
                assert (await transport.request("GET", "/healthz")).body == b"ok"
                assert (await transport.request("GET", "/livez/ping")).body == b"ok"
                assert (await transport.request("GET", "/healthz/ping")).status == 403
                assert (await transport.request("GET", "/metrics")).status == 403
                await transport.close()
                certificate, key = ((tmp_path / f"{ADMIN[0]}.{end}").read_bytes() for end in ("crt", "key"))
                access = Access(f"https://127.0.0.1:{health}", certificate=certificate, key=key, insecure=True)
                transport = HttpsTransport(access)
                metrics = (await transport.request("GET", "/metrics")).body
                assert b'workqueue_adds_total{name="deployment"}' in metrics and b"scheduler_" not in metrics
                await transport.close()
        holder = (
            "get",
            "lease",
            "kube-controller-manager",
            "-n",
            "kube-system",
            "-o",
            "jsonpath=[{.spec.holderIdentity}]",
        )
        assert await kubectl(*holder) == "[]", "the lease is given back"

    # Each controller was itself, and none of them was refused anything.
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    account = "system:serviceaccount:kube-system:replicaset-controller"
    pods = [
        e for e in events if e.get("objectRef", {}).get("resource") == "pods" and "subresource" not in e["objectRef"]
    ]
    assert {e["user"]["username"] for e in pods if e["verb"] == "create"} == {account}
    readers = {e["user"]["username"] for e in pods if e["verb"] == "watch"}
    assert readers == {"system:kube-controller-manager", "system:kube-scheduler"}
    assert [e["requestURI"] for e in events if e["responseStatus"]["code"] in (401, 403) and e["user"]] == []
    [agent] = {e["userAgent"] for e in events if e["user"].get("username") == account}
    assert (agent.partition("/")[0], agent.rpartition("/")[2]) == ("kube-controller-manager", account)
