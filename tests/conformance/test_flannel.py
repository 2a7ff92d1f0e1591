"""flannel on two machines, by its own manifest, as the pod network that they require.

    sudo scripts/test --flannel DIR

DIR has the programs `flanneld`, `install-conf` and `flannel` (the CNI plugin) and the manifest `kube-flannel.yml`; images are
made from the programs and this machine's iptables. The machines share a file system, so each has a copy of the DaemonSet and
of its configuration, with the machine's folders.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import eventually
from tests.support.images import Image
from tests.support.kube import condition, wait_pods, web
from tests.support.machines import Machine, Machines, machines
from tests.support.manifests import Object, objects

GIVEN = os.environ.get("WHERRY_FLANNEL", "")
NETWORK = "cbr0"
MISSING = f"the pod network {NETWORK} is not installed"
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not GIVEN, reason="WHERRY_FLANNEL names no folder (scripts/test --flannel)"),
]


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    with machines(f"wherry-f{os.getpid()}", (0, 0), up=("--pod-network", NETWORK)) as made:
        yield made


def manifest() -> list[Object]:
    return list(objects((Path(GIVEN) / "kube-flannel.yml").read_text()))


def iptables() -> dict[str, bytes]:
    """Return iptables of this machine under its names, with its libraries and extensions."""
    program = Path("/usr/sbin/xtables-nft-multi")
    linked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout.split()
    libraries = [Path(word) for word in linked if word.startswith("/")]
    folder = next(path for path in Path("/usr/lib").rglob("xtables") if path.is_dir())
    names = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
    found = {f"usr/sbin/{name}": program.read_bytes() for name in names}
    return found | {str(path).lstrip("/"): path.read_bytes() for path in [*libraries, *folder.glob("*.so")]}


def load(two: Machines, found: list[Object]) -> None:
    """Load images with the names that the manifest has."""
    (pods,) = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "DaemonSet"]
    names = {each["image"] for each in (*pods["initContainers"], *pods["containers"])}
    own = {f"opt/bin/{name}": (Path(GIVEN) / name).read_bytes() for name in ("flanneld", "install-conf")}
    plugin = {"flannel": (Path(GIVEN) / "flannel").read_bytes()}
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    made = [
        Image(name, programs=plugin if "plugin" in name else {**own, **iptables()}, env=path) for name in sorted(names)
    ]
    for machine in two:
        machine.load(*made)


def on_machine(found: list[Object], machine: Machine) -> list[Object]:
    """Return the DaemonSet and the configuration with the folders of one machine."""
    made = [copy.deepcopy(each) for each in found if each["kind"] in ("DaemonSet", "ConfigMap")]
    for each in made:
        each["metadata"]["name"] += f"-{machine.node}"
        if each["kind"] == "ConfigMap":
            each["data"]["cni-conf.json"] = json.dumps(_configuration(each, machine.prefix))
            continue
        each["spec"]["selector"]["matchLabels"]["node"] = machine.node
        each["spec"]["template"]["metadata"]["labels"]["node"] = machine.node
        pods = each["spec"]["template"]["spec"]
        pods["nodeSelector"] = {"kubernetes.io/hostname": machine.node}
        for volume in pods["volumes"]:
            if "configMap" in volume:
                volume["configMap"]["name"] += f"-{machine.node}"
            if "hostPath" in volume:
                path = machine.prefix / volume["hostPath"]["path"].lstrip("/")
                volume["hostPath"] = {"type": "DirectoryOrCreate", **volume["hostPath"], "path": str(path)}
    return made


def _configuration(each: Object, prefix: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(each["data"]["cni-conf.json"])
    assert made["name"] == NETWORK
    made["plugins"][0] |= {
        "subnetFile": str(prefix / "run/flannel/subnet.env"),
        "dataDir": str(prefix / "var/lib/cni/flannel"),
        "ipam": {"type": "host-local", "dataDir": str(prefix / "var/lib/cni/networks")},
    }
    return made


def test_machines_get_their_network_from_flannel(two: Machines) -> None:
    found = manifest()
    load(two, found)
    for machine in two:
        assert condition(two.get("node", machine.node), "Ready")["status"] == "False"
        assert MISSING in machine.wherry("status", check=False).stdout
    others = [each for each in found if each["kind"] not in ("DaemonSet", "ConfigMap")]
    for part in (others, *(on_machine(found, machine) for machine in two)):
        two.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": part}))
    two.wait_ready(seconds=120)
    for machine in two:
        assert f"those of the CNI network {NETWORK}\n" in machine.wherry("status", check=False).stdout
        assert "flannel.1" in machine.host.run("ip", "-br", "link").stdout

    two.kubectl("create", "namespace", "x")
    address = web(two.first, "x", 2)
    pods = wait_pods(two.first, "x", "app=web", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {machine.node for machine in two}, "one on each machine"
    for machine in two:
        for pod in pods:  # from the node, and through the VXLAN from a pod of the other one
            name = pod["metadata"]["name"]
            eventually(lambda m=machine, p=pod, n=name: n in m.http(p["status"]["podIP"]), "the pod answers")  # type: ignore[misc]
    first, second = pods
    for one, other in ((first, second), (second, first)):
        command = ("wget", "-qO-", f"http://{other['status']['podIP']}/")
        got = two.kubectl("exec", "-n", "x", one["metadata"]["name"], "--", *command).stdout
        assert other["metadata"]["name"] in got
    assert {two.first.http(address).split()[0] for _ in range(20)} == {pod["metadata"]["name"] for pod in pods}
