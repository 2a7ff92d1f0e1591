"""Paths of a cluster's files on one machine.

Everything hangs below a prefix, which is "/" for the real thing; another prefix gives a second, separate installation
on the same machine, as the tests use. The folders are upstream's where upstream has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one installation."""

    prefix: Path = Path("/")

    def _at(self, path: str) -> Path:
        return self.prefix / path

    @property
    def etc(self) -> Path:
        """Configuration files and kubeconfigs."""
        return self._at("etc/wherry")

    @property
    def state(self) -> Path:
        """State that must survive a reboot: the database, the certificates, containerd's images."""
        return self._at("var/lib/wherry")

    @property
    def run(self) -> Path:
        """Sockets and process IDs, gone after a reboot."""
        return self._at("run/wherry")

    @property
    def logs(self) -> Path:
        return self._at("var/log/wherry")

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def proxy_pki(self) -> Path:
        """The proxy's own certificate on a machine that joined."""
        return self.state / "proxy"

    @property
    def snapshots(self) -> Path:
        return self.state / "snapshots"

    @property
    def wheels(self) -> Path:
        """Wheels of a bundle, from which scripts/install installs without a network."""
        return self.state / "wheels"

    @property
    def addons(self) -> Path:
        """Manifests of the administrator that the control plane applies."""
        return self.state / "addons"

    @property
    def kubelet(self) -> Path:
        return self._at("var/lib/kubelet")

    @property
    def pod_logs(self) -> Path:
        return self._at("var/log/pods")

    @property
    def container_logs(self) -> Path:
        return self._at("var/log/containers")

    @property
    def cni_configuration(self) -> Path:
        return self._at("etc/cni/net.d")

    @property
    def cni_plugins(self) -> Path:
        """The folder into which other CNI plugins install their programs."""
        return self._at("opt/cni/bin")

    @property
    def cni_links(self) -> Path:
        """Names of the links in that folder that Wherry made, one a line."""
        return self.state / "cni-links"

    @property
    def cni_state(self) -> Path:
        return self._at("var/lib/cni/networks")

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def containerd_root(self) -> Path:
        return self.state / "containerd"

    @property
    def containerd_state(self) -> Path:
        return self.run / "containerd"

    @property
    def registries(self) -> Path:
        """A folder for each image registry, and the credentials for them."""
        return self.etc / "registries"

    @property
    def config(self) -> Path:
        """Options of `wherry up` and `wherry join`, written by the administrator."""
        return self.etc / "config.yaml"

    @property
    def settings(self) -> Path:
        """Settings of `wherry up`, for later commands."""
        return self.etc / "wherry.json"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.etc / "admin.kubeconfig"

    @property
    def kubeconfig_holders(self) -> Path:
        """Names of the accounts whose kubeconfig got the administrator's context, one a line."""
        return self.state / "kubeconfig-holders"

    @property
    def agent_kubeconfig(self) -> Path:
        return self.etc / "agent.kubeconfig"

    @property
    def netproxy_kubeconfig(self) -> Path:
        return self.etc / "netproxy.kubeconfig"

    @property
    def kubelet_configuration(self) -> Path:
        return self.etc / "kubelet.yaml"

    @property
    def kubelet_drop_ins(self) -> Path:
        """Drop-in files of the administrator, merged over the file that `wherry up` writes."""
        return self.etc / "kubelet.conf.d"

    @property
    def proxy_configuration(self) -> Path:
        return self.etc / "kube-proxy.yaml"

    @property
    def containerd_configuration(self) -> Path:
        return self.etc / "containerd.toml"

    @property
    def pause_archive(self) -> Path:
        return self.state / "pause.tar"

    @property
    def cgroup(self) -> str:
        """The cgroup below which all pods are: separate installations must not share kubepods."""
        return "/" if self.prefix == Path("/") else "/wherry-" + "-".join(self.prefix.parts[1:])
