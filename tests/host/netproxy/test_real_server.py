"""The role as its own process, against the real API server, as the user that RBAC lets it be."""

import asyncio
import os
import signal
import sys

import pytest

from kube.api import core_v1, meta_v1, rbac_v1
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, until
from tests.support.control import api_server
from tests.support.services import node, port, service, slice_of


@pytest.mark.parametrize(("user", "options"), [("system:kube-proxy", []), ("someone", ["--no-network-policy"])])
@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_the_process_follows_a_real_server_and_leaves_rules_when_it_ends(
    site: Site, user: str, options: list[str]
) -> None:
    """Someone who is bound to upstream's role system:node-proxier alone may do all but network policies."""

    async def check() -> None:
        async with api_server(site.folder / "control") as server:
            admin = server.client()
            await until_created(admin, core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="default")))
            await admin.create(node("node-1", "10.244.1.0/24", NODE_IP))
            if user == "someone":
                await admin.create(
                    rbac_v1.ClusterRoleBinding(
                        metadata=meta_v1.ObjectMeta(name="proxy"),
                        role_ref=rbac_v1.RoleRef(
                            api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="system:node-proxier"
                        ),
                        subjects=[rbac_v1.Subject(api_group="rbac.authorization.k8s.io", kind="User", name=user)],
                    )
                )
            kubeconfig = server.kubeconfig(user)
            argv = [sys.executable, "-m", "netproxy", "--kubeconfig", str(kubeconfig), "--hostname-override", "node-1"]
            argv += [*options, "--cluster-cidr", "10.244.0.0/16", "--cni-conf-dir", str(site.folder / "net.d")]
            with (site.folder / "netproxy.log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, start_new_session=True)
            try:
                web = service("web", "10.96.5.1", port("http", 80))
                await admin.create(web)
                await admin.create(slice_of("web", *PODS.values()))
                await until(lambda: site.fetch(site.pods["pod-a"], "10.96.5.1"), "the Service answers")
                await until((site.folder / "net.d" / "10-wherry.conflist").exists, "the CNI configuration is written")
                await asyncio.to_thread(site.node.run, "iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES")

                async def reasons() -> set[str]:
                    events = (await admin.list(core_v1.Event, "default")).items
                    return {
                        each.reason or "" for each in events if each.source and each.source.component == "kube-proxy"
                    }

                async with asyncio.timeout(60):
                    while await reasons() != {"Starting", "RulesRepaired"}:
                        await asyncio.sleep(0.2)
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(process.wait(), 60) == 0
                assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], "10.96.5.1")
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            reported = (site.folder / "netproxy.log").read_text()
            assert "Traceback" not in reported
            assert "forbidden" not in reported

    site.node.inside(check)


async def until_created(client: object, namespace: core_v1.Namespace) -> None:
    """The server makes the namespace itself at its start; make it where it has not yet."""
    from kube.errors import StatusError

    try:
        await client.create(namespace)  # type: ignore[attr-defined]
    except StatusError as error:
        if not error.already_exists:
            raise
