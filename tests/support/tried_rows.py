"""Rows of docs/troubleshooting.md whose symptom another test produces, without typing the row's command or its fix."""

from __future__ import annotations

TRIED: dict[str, tuple[str, str]] = {
    "Python … (…) never frees interned strings: names that users choose fill the memory": (
        "unit/wherry/test_check.py",
        "never frees interned strings",
    ),
    "… ends again and again": ("cluster/test_wherry.py", "ends again and again"),
    "this machine's clock is … … the server's": ("contract/test_discovery.py", "this machine's clock is"),
    "… is not an API server: …: join by the address of an API server": (
        "contract/test_server_certificates.py",
        "join by the address of an API server",
    ),
    "the cluster offers no certificates for another member": ("contract/test_joining.py", "offers no certificates"),
    "… is missing, and … applied it, not this machine: copy the file to it, or delete the objects with --disable …": (
        "contract/test_addons.py",
        "not this machine",
    ),
    "the packages cannot be installed: …": ("host/test_bundle_load.py", "the packages cannot be installed"),
    "cluster DNS cannot serve … yet: …": ("contract/serving/test_dns_sockets.py", "cluster DNS cannot serve"),
    "pods of node … cannot be reached: …": ("host/netproxy/test_node_routes.py", "cannot be reached"),
    "its certificate is a node's (…), which no API server has": ("contract/test_server_certificates.py", "is a node's"),
    "… is or was an address of an API server: see ConfigMap …/…": (
        "contract/test_former_servers.py",
        "is or was an address",
    ),
    "storage cannot commit: database or disk is full; only deletions are possible until … MiB are free": (
        "host/disks/test_api.py",
        "storage cannot commit: database or disk is full",
    ),
    "The node was low on resource: …. Threshold quantity: …, available: ….": (
        "host/node/test_eviction.py",
        "The node was low on resource",
    ),
    "container runtime is down: …": ("contract/agent/test_mute_runtime.py", "container runtime is down"),
    "the node requires the pod network …, and the container runtime has loaded …": (
        "cluster/test_other_network.py",
        ", and the container runtime has loaded",
    ),
    "Kubelet stopped posting node status.": ("cluster/test_node_failure.py", "Kubelet stopped posting node status"),
    "another agent with this name renews its lease": (
        "contract/agent/test_one_name.py",
        "another agent with this name renews its",
    ),
    "Node … status is now: CIDRNotAvailable": ("contract/test_small_controllers.py", "status is now: CIDRNotAvailable"),
    "containerd does not answer; see …": (
        "contract/test_symptoms_without_cluster.py",
        "containerd does not answer; see ",
    ),
    "it does not run, and another process answers on port …": (
        "contract/test_symptoms_without_cluster.py",
        "it does not run, and another process answers on port",
    ),
    "the daemon that has it should have renewed it": ("unit/wherry/test_expiry.py", "should have renewed it"),
    "The node had condition: […].": ("unit/agent/test_admission.py", "The node had condition"),
}
"""The message of a row -> the file of the test, and the part of the message that it expects."""
