"""kube-proxy's flags, so that its command line can stay as it is when this role takes its place.

A flag says the same as a field of the configuration file, so the flags given are turned into such a document and read on
top of the file by the same code, which says where a field has no meaning here. Booleans are Go's: alone, or
`=true`, `=false`. Unlike upstream's, flags beside `--config` count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

BOTH_MODES = ("iptables", "nftables")


def boolean(text: str) -> bool:
    """Read a Go boolean."""
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def listing(text: str) -> list[str]:
    """Read values between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def gates(text: str) -> dict[str, bool]:
    """Read Name=true pairs between commas."""
    pairs = (part.partition("=") for part in listing(text))
    return {name: boolean(value) for name, _, value in pairs}


# Flag -> (field, ... each a dotted path), how it is read.
_FIELDS: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "bind-address": (("bindAddress",), str),
    "bind-address-hard-fail": (("bindAddressHardFail",), boolean),
    "cluster-cidr": (("clusterCIDR",), str),
    "conntrack-max-per-core": (("conntrack.maxPerCore",), int),
    "conntrack-min": (("conntrack.min",), int),
    "conntrack-tcp-be-liberal": (("conntrack.tcpBeLiberal",), boolean),
    "conntrack-tcp-timeout-close-wait": (("conntrack.tcpCloseWaitTimeout",), str),
    "conntrack-tcp-timeout-established": (("conntrack.tcpEstablishedTimeout",), str),
    "conntrack-udp-timeout": (("conntrack.udpTimeout",), str),
    "conntrack-udp-timeout-stream": (("conntrack.udpStreamTimeout",), str),
    "detect-local-mode": (("detectLocalMode",), str),
    "hostname-override": (("hostnameOverride",), str),
    "iptables-localhost-nodeports": (("iptables.localhostNodePorts",), boolean),
    "iptables-masquerade-bit": (tuple(f"{mode}.masqueradeBit" for mode in BOTH_MODES), int),
    "iptables-min-sync-period": (("iptables.minSyncPeriod",), str),
    "iptables-sync-period": (("iptables.syncPeriod",), str),
    "ipvs-exclude-cidrs": (("ipvs.excludeCIDRs",), listing),
    "ipvs-min-sync-period": (("ipvs.minSyncPeriod",), str),
    "ipvs-scheduler": (("ipvs.scheduler",), str),
    "ipvs-strict-arp": (("ipvs.strictARP",), boolean),
    "ipvs-sync-period": (("ipvs.syncPeriod",), str),
    "ipvs-tcp-timeout": (("ipvs.tcpTimeout",), str),
    "ipvs-tcpfin-timeout": (("ipvs.tcpFinTimeout",), str),
    "ipvs-udp-timeout": (("ipvs.udpTimeout",), str),
    "config-sync-period": (("configSyncPeriod",), str),
    "feature-gates": (("featureGates",), gates),
    "kube-api-burst": (("clientConnection.burst",), int),
    "kube-api-content-type": (("clientConnection.contentType",), str),
    "kube-api-qps": (("clientConnection.qps",), float),
    "kubeconfig": (("clientConnection.kubeconfig",), str),
    "log-flush-frequency": (("logging.flushFrequency",), str),
    "logging-format": (("logging.format",), str),
    "masquerade-all": (tuple(f"{mode}.masqueradeAll" for mode in BOTH_MODES), boolean),
    "nodeport-addresses": (("nodePortAddresses",), listing),
    "oom-score-adj": (("oomScoreAdj",), int),
    "pod-bridge-interface": (("detectLocal.bridgeInterface",), str),
    "pod-interface-name-prefix": (("detectLocal.interfaceNamePrefix",), str),
    "profiling": (("enableProfiling",), boolean),
    "proxy-mode": (("mode",), str),
    "proxy-port-range": (("portRange",), str),
    "show-hidden-metrics-for-version": (("showHiddenMetricsForVersion",), str),
    "vmodule": (("logging.vmodule",), str),
}
_IGNORED = ("log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream")


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add every flag of kube-proxy that stands for a field of its configuration, and those that are ignored."""
    fields = parser.add_argument_group("kube-proxy's flags, each a field of its configuration file")
    for name, (paths, read) in _FIELDS.items():
        value: dict[str, Any] = {"nargs": "?", "const": True} if read is boolean else {}
        fields.add_argument(f"--{name}", type=read, metavar=name.upper(), help=" and ".join(paths), **value)
    fields.add_argument("-v", "--v", type=int, nargs="?", const=4, metavar="LEVEL", help="logging.verbosity")
    for name in _IGNORED:
        parser.add_argument(f"--{name}", nargs="?", const=True, help=argparse.SUPPRESS)


def document(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the flags that were given as the fields of a configuration file."""
    result: dict[str, Any] = {}
    for name, (paths, _) in {**_FIELDS, "v": (("logging.verbosity",), int)}.items():
        value = getattr(arguments, name.replace("-", "_"))
        if value is None:
            continue
        for path in paths:
            *sections, last = path.split(".")
            inner = result
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = value
    return result
