"""Content of a support bundle: commands about the machine, and lists of the cluster's objects.

All resources are listed but those whose objects are secrets or copies of others. Those that most reports need come first,
because a limit of time may end the others early.
"""

from __future__ import annotations

from kube import resources
from kube.resources import Resource

COMMANDS = {
    "uname": ["uname", "-a"],
    "os-release": ["cat", "/etc/os-release"],
    "memory": ["cat", "/proc/meminfo"],
    "pressure": ["sh", "-c", "head /proc/pressure/*"],
    "disks": ["df", "-h"],
    "mounts": ["cat", "/proc/mounts"],
    "processes": ["ps", "-eo", "pid,ppid,user,stat,etime,rss,comm"],
    "addresses": ["ip", "-d", "address"],
    "routes": ["ip", "route", "show", "table", "all"],
    "routes6": ["ip", "-6", "route", "show", "table", "all"],
    "neighbours": ["ip", "neighbour"],
    "sockets": ["ss", "-lntup"],
    "iptables": ["iptables-save"],
    "ip6tables": ["ip6tables-save"],
    "nftables": ["nft", "list", "ruleset"],
    # As another user: some of those that only root may read are keys.
    "sysctls": [
        *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
        *("sysctl", "-a", "--pattern", "^(net\\.(ipv4|ipv6|bridge|netfilter)|vm|fs\\.(file|inotify))"),
    ],
}
LEFT_OUT = frozenset(
    {
        ("", "secrets"),
        ("", "configmaps"),
        ("", "endpoints"),  # EndpointSlices have the same
        ("", "podtemplates"),
        ("apps", "controllerrevisions"),  # earlier templates of what is listed
        ("", "componentstatuses"),
        ("events.k8s.io", "events"),  # those of the core group
        ("networking.k8s.io", "ipaddresses"),  # Services have the same
    }
)
"""Group and plural of resources that are not listed."""
_FIRST = ("nodes", "namespaces", "pods", "services", "endpointslices", "events")
_GATEWAY = "/apis/gateway.networking.k8s.io/v1"
_GATEWAY_KINDS = ("gatewayclasses", "gateways", "httproutes", "referencegrants")


def paths() -> dict[str, str]:
    """Return the path of each list, by the name of its file; the newest version of each resource."""
    found: dict[str, Resource] = {}
    for resource in resources.RESOURCES:
        if "list" in resource.verbs and (resource.group, resource.plural) not in LEFT_OUT:
            known = found.get(resource.plural)
            if known is None or known.version < resource.version:
                found[resource.plural] = resource
    names = [*_FIRST, *sorted(found.keys() - {*_FIRST})]
    return {name: _path(found[name]) for name in names} | {each: f"{_GATEWAY}/{each}" for each in _GATEWAY_KINDS}


def _path(resource: Resource) -> str:
    group = f"/apis/{resource.group}" if resource.group else "/api"
    return f"{group}/{resource.version}/{resource.plural}"
