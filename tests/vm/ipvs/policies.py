"""Network policies where IPVS hands connections on: through cluster IPs and node ports, in both families."""

from concurrent.futures import ThreadPoolExecutor

from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, until
from tests.support.memory_api import MemoryAPI
from tests.support.policies import pod, policy
from tests.support.services import port, service, slice_of
from tests.vm.ipvs.machine_site import CLIENT_SIX, LIMIT, NODE_SIX, SIX, fetch

WEB, WEB_SIX = "10.96.5.4", "fd00:96::4"
A, B = ({"podSelector": {"matchLabels": {"app": app}}} for app in "ab")
WAYS = {
    "host": ("node", WEB, 80),
    "host, IPv6": ("node", f"[{WEB_SIX}]", 80),
    "itself": ("pod-a", WEB, 80),
    "itself, IPv6": ("pod-a", f"[{WEB_SIX}]", 80),
    "pod": ("pod-b", WEB, 80),
    "pod, IPv6": ("pod-b", f"[{WEB_SIX}]", 80),
    "client": ("client", NODE_IP, 30081),
    "client, IPv6": ("client", f"[{NODE_SIX}]", 30081),
}
ALWAYS = ("host", "itself")


async def policies(site: Site, api: MemoryAPI) -> None:
    for each in (SlimNamespace(SlimMeta(name="default")), *services(), *pods()):
        api.put(each)  # type: ignore[arg-type]
    await settle(site, "open without a policy", "pod", "client")
    api.put(policy("in", **A))
    await settle(site, "closed to all but the host")
    api.put(policy("in", **A, ingress=[{"from": [B], "ports": [{"port": 8080}]}]))
    await settle(site, "open to one pod", "pod")
    clients = [{"ipBlock": {"cidr": cidr}} for cidr in (f"{CLIENT_IP}/32", f"{CLIENT_SIX}/128")]
    api.put(policy("in", **A, ingress=[{"from": clients}]))
    await settle(site, "open to the client, who has its own address here", "client")
    api.remove(policy("in"))
    api.put(policy("out", **B, policyTypes=["Egress"], egress=[{"ports": [{"port": 80}]}]))
    await settle(site, "a pod may send to the Service's port, which is not the endpoint's", "client")
    api.put(policy("out", **B, policyTypes=["Egress"], egress=[{"to": [A], "ports": [{"port": 8080}]}]))
    await settle(site, "a pod may send to the endpoint", "pod", "client")
    api.remove(policy("out"))


def services() -> list[object]:
    ports = port("http", 80, node_port=30081)
    return [
        service("judged", WEB, ports, type="NodePort", ips=[WEB, WEB_SIX]),
        slice_of("judged", PODS["pod-a"]),
        slice_of("judged", SIX["pod-a"], suffix="six", address_type="IPv6"),
    ]


def pods() -> list[object]:
    return [pod(name, PODS[name], SIX[name], labels={"app": name[-1]}) for name in PODS]


async def settle(site: Site, what: str, *open_to: str) -> None:
    """Wait until only these, and those whom no policy judges, are answered in both families."""
    wanted = [way for way in WAYS if way.partition(",")[0] in (*ALWAYS, *open_to)]
    seen: list[str] = []

    def look() -> bool:
        with ThreadPoolExecutor(len(WAYS)) as pool:
            pages = pool.map(lambda way: fetch(site, *way), WAYS.values())
            seen[:] = [name for name, page in zip(WAYS, pages, strict=True) if page == "pod-a"]
        return seen == wanted

    try:
        await until(look, what, LIMIT)
    except AssertionError as error:
        raise AssertionError(f"{error}: answered are {seen}") from None
