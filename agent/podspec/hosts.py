"""A pod's host name and the /etc/hosts file that its containers share (pkg/kubelet/kubelet_pods.go)."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import core_v1

_HEAD = "# Kubernetes-managed hosts file.\n"
_HOST_HEAD = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
_MAX_HOSTNAME = 63
_MAX_FQDN = 64
"""Longest host name of the kernel."""


class HostnameError(Exception):
    """The pod's full name does not fit into the kernel's host name."""


def hostname_and_domain(pod: core_v1.Pod, cluster_domain: str) -> tuple[str, str]:
    """Return the pod's host name (at most 63 characters) and, with a subdomain, its domain in the cluster."""
    spec = pod.spec
    if spec.hostname_override:
        return spec.hostname_override, ""
    hostname = (spec.hostname or pod.metadata.name or "")[:_MAX_HOSTNAME].rstrip("-.")
    domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}" if spec.subdomain else ""
    return hostname, domain


def sandbox_hostname(pod: core_v1.Pod, cluster_domain: str) -> str:
    """Return the kernel's host name for the sandbox: the full name where the pod wants that. Raise HostnameError."""
    hostname, domain = hostname_and_domain(pod, cluster_domain)
    if pod.spec.set_hostname_as_fqdn and domain:
        name = f"{hostname}.{domain}"
        if len(name) > _MAX_FQDN:
            raise HostnameError(
                f"failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long "
                f"({_MAX_FQDN} characters is the max, {len(name)} characters requested)"
            )
        return name
    return hostname


def hosts_file(pod: core_v1.Pod, pod_ips: Sequence[str], cluster_domain: str, host_file: str = "") -> str:
    """Write the file: the usual names, the pod's own, and the aliases; on the host network the host's file."""
    if pod.spec.host_network:
        text = _HOST_HEAD + host_file
    else:
        hostname, domain = hostname_and_domain(pod, cluster_domain)
        names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
        text = _HEAD + _LOCAL + "".join(f"{ip}\t{names}\n" for ip in pod_ips)
    if pod.spec.host_aliases:
        text += "\n# Entries added by HostAliases.\n"
        for alias in pod.spec.host_aliases:
            text += alias.ip + "\t" + "\t".join(alias.hostnames) + "\n"
    return text
