"""Forms a pod's /etc/resolv.conf from its dnsPolicy and dnsConfig (pkg/kubelet/network/dns)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube.api import core_v1

MAX_SERVERS, MAX_SEARCHES, MAX_SEARCH_CHARS = 3, 32, 2048


@dataclass(frozen=True, slots=True)
class Resolver:
    """The three kinds of line of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse(text: str) -> Resolver:
    """Read a resolv.conf; later search lines replace earlier ones, options add up."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver":
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = [word if word == "." else word.rstrip(".") for word in words[1:]]
        elif words[0] == "options":
            options += words[1:]
    return Resolver(tuple(servers), tuple(searches), tuple(dict.fromkeys(options)))


def for_pod(pod: core_v1.Pod, host: Resolver, cluster_dns: Sequence[str], cluster_domain: str) -> Resolver:
    """Return the pod's resolver; ClusterFirst without a cluster DNS address falls back to the host's."""
    return _limited(_wanted(pod, host, cluster_dns, cluster_domain))


def warnings(
    pod: core_v1.Pod, host: Resolver, cluster_dns: Sequence[str], cluster_domain: str
) -> list[tuple[str, str]]:
    """Return reasons and messages of events about DNS settings that were left out, as upstream records them."""
    events = []
    if _policy(pod) in ("ClusterFirst", "ClusterFirstWithHostNet") and not cluster_dns:
        metadata = pod.metadata
        who = f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        lacks = "kubelet does not have ClusterDNS IP configured and cannot create Pod using"
        fallback = f'{lacks} "ClusterFirst" policy. Falling back to "Default" policy.'
        events.append(("MissingClusterDNS", f'pod: "{who}". {fallback}'))
    wanted = _wanted(pod, host, cluster_dns, cluster_domain)
    given = _limited(wanted)
    for kind, what, before, after in (
        ("Nameserver", "nameserver", wanted.servers, given.servers),
        ("Search Line", "search", wanted.searches, given.searches),
    ):
        if len(after) < len(dict.fromkeys(before)):
            omitted = "nameservers" if what == "nameserver" else "search paths"
            limits = f"{kind} limits were exceeded, some {omitted} have been omitted"
            events.append(("DNSConfigForming", f"{limits}, the applied {what} line is: {' '.join(after)}"))
    return events


def _policy(pod: core_v1.Pod) -> str:
    policy = pod.spec.dns_policy or "ClusterFirst"
    return "Default" if policy == "ClusterFirst" and pod.spec.host_network else policy


def _wanted(pod: core_v1.Pod, host: Resolver, cluster_dns: Sequence[str], cluster_domain: str) -> Resolver:
    policy = _policy(pod)
    if policy in ("ClusterFirst", "ClusterFirstWithHostNet") and cluster_dns:
        searches: tuple[str, ...] = ()
        if cluster_domain:
            namespace = pod.metadata.namespace
            searches = (f"{namespace}.svc.{cluster_domain}", f"svc.{cluster_domain}", cluster_domain)
        base = Resolver(tuple(cluster_dns), (*searches, *host.searches), ("ndots:5",))
    elif policy == "None":
        base = Resolver()
    else:
        base = host
    return _merged(base, pod.spec.dns_config)


def _merged(base: Resolver, extra: core_v1.PodDNSConfig | None) -> Resolver:
    if extra is None:
        return base
    options = {_option_name(option): option for option in base.options}
    for option in extra.options:
        name = option.name or ""
        options[name] = f"{name}:{option.value}" if option.value else name
    return Resolver((*base.servers, *extra.nameservers), (*base.searches, *extra.searches), tuple(options.values()))


def _option_name(option: str) -> str:
    return option.partition(":")[0]


def _limited(resolver: Resolver) -> Resolver:
    """Keep what the C library reads: three servers, 32 search domains of 2048 characters together."""
    searches: list[str] = []
    for domain in dict.fromkeys(resolver.searches):
        if len(searches) == MAX_SEARCHES or len(" ".join((*searches, domain))) > MAX_SEARCH_CHARS:
            break
        searches.append(domain)
    servers = tuple(dict.fromkeys(resolver.servers))[:MAX_SERVERS]
    return Resolver(servers, tuple(searches), resolver.options)
