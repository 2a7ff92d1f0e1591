"""The flags of upstream's command line that the agent supports; most settings are in the configuration file.

A flag's text is parsed here where it has a form of its own: `key=value` pairs, and taints as kubectl writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.kubelet_configuration import ConfigError, Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Upstream's command line flags that the agent knows, as strings; "" is not given."""

    config: str = ""
    config_dir: str = ""
    kubeconfig: str = ""
    bootstrap_kubeconfig: str = ""
    root_dir: str = "/var/lib/kubelet"
    cert_dir: str = ""
    hostname_override: str = ""
    node_ip: str = ""
    node_labels: str = ""
    register_with_taints: str = ""
    container_logs_dir: str = "/var/log/containers"
    image_credential_provider_config: str = ""
    image_credential_provider_bin_dir: str = ""
    logging_format: str = ""


def labels(text: str) -> dict[str, str]:
    """Read --node-labels. Raise ConfigError."""
    found = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--node-labels: expected key=value, found {pair!r}")
        found[key.strip()] = value.strip()
    return found


def taints(text: str) -> tuple[Taint, ...]:
    """Read --register-with-taints. Raise ConfigError."""
    found = []
    for item in filter(None, text.split(",")):
        head, separator, effect = item.rpartition(":")
        if not separator or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ConfigError(f"--register-with-taints: expected key=value:effect, found {item!r}")
        key, _, value = head.partition("=")
        found.append(Taint(key=key, value=value, effect=effect))
    return tuple(found)
