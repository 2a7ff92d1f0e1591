"""Settings of the controller manager."""

from __future__ import annotations

import msgspec

from control.controllers.addons.settings import AddonSettings
from control.controllers.autoscaling.settings import AutoscalingSettings
from control.controllers.legacy_tokens import YEAR
from control.controllers.nodes.zones import LifecycleSettings
from control.interfaces.local_nodes import LocalNodes
from kube.port_ranges import LOAD_BALANCERS


class ControllerConfig(msgspec.Struct, frozen=True):
    """Settings of the cluster for controllers. Empty CA material leaves out what needs it."""

    cluster_cidr: str = "10.244.0.0/16"
    node_mask: int = 24
    """Prefix length of the pod range that each node gets."""
    root_ca: str = ""
    """PEM of the CA that signed the API server's certificate, published in every namespace."""
    signing_cert: str = ""
    signing_key: str = ""
    """PEM of the CA that signs certificates of nodes and users."""
    server_names: frozenset[str] = frozenset()
    """Names and addresses in the API server's certificate, which no node is given one for."""
    cluster_domain: str = "cluster.local"
    """The domain of Services' names, of which no node is given a certificate for one."""
    service_account_key: str = ""
    """PEM of the key that signs service accounts' tokens."""
    service_load_balancer: bool = True
    """True if Services of type LoadBalancer get addresses of nodes; off where something else gives them some."""
    load_balancer_ports: str = LOAD_BALANCERS
    """The ports that such Services may have, as kube.port_ranges reads them."""
    api_port: int = 6443
    local_path: bool = False
    """True if claims can be folders on nodes (the storage class local-path)."""
    gateway: bool = False
    """True if the Gateway API and Ingresses are served."""
    addons: AddonSettings | None = None
    """The folder whose files are applied; None: there is none."""
    autoscaling: AutoscalingSettings = msgspec.field(default_factory=AutoscalingSettings)
    lifecycle: LifecycleSettings = msgspec.field(default_factory=LifecycleSettings)
    local_nodes: LocalNodes | None = None
    """Nodes that run in this process."""
    legacy_tokens: float = YEAR
    """Seconds without use after which a token that was made by itself is marked, and deleted after as many more."""
    controllers: tuple[str, ...] = ("*",)
    """Enabled controllers: `*` is all, a name one more, `-name` one less, as upstream's --controllers."""

    def runs(self, name: str) -> bool:
        return name in self.controllers or ("*" in self.controllers and f"-{name}" not in self.controllers)
