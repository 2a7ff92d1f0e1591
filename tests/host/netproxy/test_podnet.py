"""The CNI configuration that the role writes, run by the real plugins as a container runtime runs them."""

import asyncio
import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, serve_http, until
from tests.support.netns import Namespace, namespaces
from tests.support.services import service, slice_of

PLUGINS = "/usr/lib/cni"

pytestmark = pytest.mark.parametrize("site", ["nft"], indirect=True)


def cni(command: str, conflist: dict[str, Any], node: Namespace, pod: Namespace, **runtime: Any) -> dict[str, Any]:
    """Run a network list's plugins in the node's namespace; return the last result."""
    result: dict[str, Any] = {}
    plugins = conflist["plugins"]
    for plugin in plugins if command == "ADD" else reversed(plugins):
        config = {"cniVersion": conflist["cniVersion"], "name": conflist["name"], **plugin}
        wanted = {key: value for key, value in runtime.items() if plugin.get("capabilities", {}).get(key)}
        if wanted:
            config["runtimeConfig"] = wanted
        if result:
            config["prevResult"] = result
        environment = {
            **os.environ,
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod.name,
            "CNI_NETNS": str(pod.path),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": PLUGINS,
        }
        done = subprocess.run(
            ["nsenter", f"--net={node.path}", f"{PLUGINS}/{plugin['type']}"],
            input=json.dumps(config),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        result = json.loads(done.stdout) if done.stdout else {}
    return result


def test_a_pod_gets_its_address_reaches_services_and_serves_its_host_port(site: Site) -> None:
    async def check(pod: Namespace) -> None:
        api = populated(service("web", "10.96.5.1"), slice_of("web", PODS["pod-b"]))
        path = site.folder / "net.d" / "10-wherry.conflist"
        async with running(site.config, api):
            await until(path.exists, "the CNI configuration is written")
            conflist = json.loads(path.read_text())
            mappings = [{"hostPort": 8088, "containerPort": 8080, "protocol": "tcp"}]
            result = await asyncio.to_thread(cni, "ADD", conflist, site.node, pod, portMappings=mappings)
            address = result["ips"][0]["address"]
            assert address.startswith("10.244.1.")
            ip = address.split("/")[0]
            await asyncio.to_thread(serve_http, pod, site.folder / "new", "new")
            await until(lambda: site.fetch(pod, "10.96.5.1") == "pod-b", "the new pod reaches a Service")
            api.put(slice_of("web", ip))
            await until(lambda: site.fetch(site.pods["pod-a"], "10.96.5.1") == "new", "the new pod serves it")
            await until(lambda: site.fetch(pod, "10.96.5.1") == "new", "the pod reaches itself through its Service")
            await until(lambda: site.fetch(site.client, NODE_IP, 8088) == "new", "its host port answers from outside")
            await asyncio.to_thread(cni, "DEL", conflist, site.node, pod, portMappings=mappings)
            assert await asyncio.to_thread(site.fetch, site.client, NODE_IP, 8088, 1) == ""

    with namespaces(f"{site.node.name}-new") as (pod,):
        pod.run("ip", "link", "set", "lo", "up")
        # Two pods of the test stand on the first addresses without having asked host-local: keep it off them.
        state = site.folder / "cni" / "wherry"
        state.mkdir(parents=True)
        for taken in PODS.values():
            (state / taken).write_text("test")
        site.node.inside(lambda: check(pod))


def test_no_pod_starts_between_a_boot_and_the_first_rules(site: Site) -> None:
    """A boot leaves the list, and takes the rules and what is under /run."""

    async def check(pod: Namespace) -> None:
        folder = site.folder / "run"
        async with running(site.config, populated()):
            await until(lambda: folder.exists() and any(folder.iterdir()), "pods may start")
            assert "wherry-sources" in site.node.run("nft", "list", "tables")
            conflist = json.loads((site.folder / "net.d" / "10-wherry.conflist").read_text())
            assert (await asyncio.to_thread(cni, "ADD", conflist, site.node, pod))["dns"] == {}
        shutil.rmtree(folder)
        await asyncio.to_thread(cni, "DEL", conflist, site.node, pod)
        with pytest.raises(AssertionError, match="no such file"):
            await asyncio.to_thread(cni, "ADD", conflist, site.node, pod)
        pod.run("ip", "link", "del", "eth0")
        async with running(site.config, populated()):
            await until(lambda: folder.exists() and any(folder.iterdir()), "pods may start")
            shutil.rmtree(folder)
            await until(lambda: folder.exists() and any(folder.iterdir()), "what others removed is back", 20)
            await asyncio.to_thread(cni, "ADD", conflist, site.node, pod)

    with namespaces(f"{site.node.name}-new") as (pod,):
        site.node.inside(lambda: check(pod))


def test_pods_reach_the_world_as_the_node_and_each_other_as_themselves(site: Site) -> None:
    async def check() -> None:
        seen = site.folder / "seen"
        program = (
            "import socket\n"
            f"s = socket.create_server(('', 7000)); out = open({str(seen)!r} + '-' + NAME, 'w')\n"
            "while True:\n"
            "    c, peer = s.accept(); out.write(peer[0] + '\\n'); out.flush(); c.close()\n"
        )
        for name, namespace in (("client", site.client), ("pod-b", site.pods["pod-b"])):
            namespace.start("python3", "-I", "-c", f"NAME = {name!r}\n{program}")
        pod = site.pods["pod-a"]
        # The world knows no route to pods: an answer comes only if the node put its own address in.
        site.client.run("ip", "route", "del", "default")

        def first_line(name: str) -> str:
            path = site.folder / f"seen-{name}"
            return path.read_text().split("\n")[0] if path.exists() else ""

        async with running(site.config, populated()):
            conf = site.folder / "net.d" / "10-wherry.conflist"
            await until(conf.exists, "the pod network is set up")
            await until(lambda: site.error(pod, "192.168.77.2", 7000) == "", "the pod reaches the world")
            await until(lambda: site.error(pod, PODS["pod-b"], 7000) == "", "the pod reaches a pod")
            await until(lambda: first_line("client") == NODE_IP, "the world sees the node")
            await until(lambda: first_line("pod-b") == PODS["pod-a"], "the pod sees the pod")
            # An address of the pod range that no pod has goes nowhere.
            assert await asyncio.to_thread(site.error, site.node, "10.244.9.9", 80) in ("EHOSTUNREACH", "ENETUNREACH")

    site.node.inside(check)
