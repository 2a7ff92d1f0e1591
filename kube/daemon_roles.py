"""ClusterRoles of docs/install.md: permissions that Wherry's daemons use and upstream's roles for nodes and proxies lack.

A daemon in a cluster made by another installer is refused without them; the log names the role that is missing.
"""

from __future__ import annotations

SERVERS = "wherry:servers"
NETWORK_POLICY = "wherry:network-policy"
