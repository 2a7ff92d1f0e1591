"""Section 4: the kubelet and the proxy of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kube import duration
from wherry.security.facts import Facts
from wherry.security.files import below, mode, owner
from wherry.security.rows import Check, CheckResult, failed, judge, not_here, passed

DROP_IN = "a file in `/etc/wherry/kubelet.conf.d` (docs/agent.md)"


def _definition(facts: Facts) -> Iterable[Path]:
    return facts.daemon_files


def _proxy(facts: Facts) -> Iterable[Path]:
    return [facts.settings.layout.netproxy_kubeconfig]


def _agent(facts: Facts) -> Iterable[Path]:
    return [facts.settings.layout.agent_kubeconfig]


def _authority(facts: Facts) -> Iterable[Path]:
    return [Path(facts.kubelet.get("authentication", {}).get("x509", {}).get("clientCAFile") or "/nonexistent")]


def _configuration(facts: Facts) -> Iterable[Path]:
    layout = facts.settings.layout
    return [layout.kubelet_configuration, *below(layout.kubelet_drop_ins, "*.conf")]


def _anonymous(facts: Facts) -> CheckResult:
    on = facts.kubelet.get("authentication", {}).get("anonymous", {}).get("enabled")
    if on or facts.probed.kubelet_anonymous != 401:
        got = facts.probed.kubelet_anonymous or "no answer"
        return failed(f"a request without credentials got {got} for /pods", f"anonymous.enabled: false in {DROP_IN}")
    return passed("a request without credentials got 401")


def _authorization(facts: Facts) -> CheckResult:
    found = facts.kubelet.get("authorization", {}).get("mode", "")
    return passed(found) if found == "Webhook" else failed(f"it is {found}", f"mode: Webhook in {DROP_IN}")


def _client_ca(facts: Facts) -> CheckResult:
    file = next(iter(_authority(facts)))
    return passed(str(file)) if file.exists() else failed("no file is named", f"clientCAFile in {DROP_IN}")


def _read_only(facts: Facts) -> CheckResult:
    known = (facts.kubelet.get("port"),)
    more = [each for each in facts.sockets("agent") if each.port not in known and not each.on_loopback]
    if more:
        return failed(f"it listens on {more[0].address}:{more[0].port}", f"healthzBindAddress: 127.0.0.1 in {DROP_IN}")
    return passed("none; health is served on loopback")


def _idle(facts: Facts) -> CheckResult:
    found = facts.kubelet.get("streamingConnectionIdleTimeout", "4h")
    if duration.parse(found):
        return passed(found)
    return failed("0: connections never time out", f"streamingConnectionIdleTimeout: 4h in {DROP_IN}")


def _host_name(facts: Facts) -> CheckResult:
    if facts.settings.node_name == facts.host_name:
        return passed(facts.host_name)
    return judge(
        f"the node is {facts.settings.node_name}, the machine {facts.host_name}",
        "harmless while no other machine has the node's name",
    )


def _certificate(facts: Facts) -> CheckResult:
    files = [facts.kubelet.get("tlsCertFile", ""), facts.kubelet.get("tlsPrivateKeyFile", "")]
    if all(files) and all(Path(file).exists() for file in files):
        return passed(", ".join(files))
    if facts.kubelet.get("serverTLSBootstrap"):
        return passed("signed by the cluster")
    return failed("self-signed", f"serverTLSBootstrap: true in {DROP_IN}")


def _rotates(facts: Facts) -> CheckResult:
    if facts.kubelet.get("rotateCertificates"):
        return passed()
    return failed("disabled", f"rotateCertificates: true in {DROP_IN}")


def _serving_rotates(facts: Facts) -> CheckResult:
    if facts.kubelet.get("serverTLSBootstrap"):
        return passed("renewed through the cluster")
    if not facts.settings.is_worker and facts.kubelet.get("tlsCertFile"):
        return passed("issued by this machine's CA; `wherry up` renews it")
    return failed("it is not renewed", f"serverTLSBootstrap: true in {DROP_IN}")


def _ciphers(facts: Facts) -> CheckResult:
    if suite := facts.probed.kubelet_weak_suite:
        return failed(f"it accepted {suite}", f"remove tlsCipherSuites from {DROP_IN}")
    return passed("weak suites were rejected")


def _localnet(facts: Facts) -> CheckResult:
    if facts.kubelet.get("makeIPTablesUtilChains", True):
        return passed("packets from elsewhere to 127.0.0.0/8 are dropped (table inet wherry-localnet)")
    return failed("disabled", f"makeIPTablesUtilChains: true in {DROP_IN}")


def _processes(facts: Facts) -> CheckResult:
    found = facts.kubelet.get("podPidsLimit", -1)
    if found > 0:
        return passed(str(found))
    return judge("a pod can start as many processes as the machine allows", f"podPidsLimit: 4096 in {DROP_IN}")


def _seccomp(facts: Facts) -> CheckResult:
    if facts.kubelet.get("seccompDefault"):
        return passed("RuntimeDefault where a pod names none")
    return failed("disabled", f"seccompDefault: true in {DROP_IN}")


def _metrics(facts: Facts) -> CheckResult:
    port = facts.settings.proxy_metrics_port
    if not facts.settings.own_proxy:
        return judge("the proxy is not Wherry's", "metricsBindAddress: 127.0.0.1 in its configuration")
    open_ = [each for each in facts.sockets("netproxy") if each.port == port and not each.on_loopback]
    if open_:
        return failed(f"it listens on {open_[0].address}:{port}", "metricsBindAddress: 127.0.0.1 in kube-proxy.yaml")
    return passed(f"127.0.0.1:{port}")


def _elsewhere(why: str) -> Callable[[Facts], CheckResult]:
    return lambda facts: not_here(why)


_EVENTS = "events are aggregated and counted; there is no rate limit that drops them"


def _row(number: str, title: str, look: Callable[[Facts], CheckResult], state: str = "passes") -> Check:
    return Check(number, title, look, state, for_worker=True)


CHECKS = (
    _row("4.1.1", "Agent unit file: mode 600 or stricter", mode(_definition, 0o600), "passes; it is a systemd unit"),
    _row("4.1.2", "Agent unit file: owned by root", owner(_definition)),
    _row("4.1.3", "Proxy kubeconfig: mode 600", mode(_proxy, 0o600)),
    _row("4.1.4", "Proxy kubeconfig: owned by root", owner(_proxy)),
    _row("4.1.5", "Agent kubeconfig: mode 600", mode(_agent, 0o600)),
    _row("4.1.6", "Agent kubeconfig: owned by root", owner(_agent)),
    _row("4.1.7", "Client CA file: mode 644 or stricter", mode(_authority, 0o644)),
    _row("4.1.8", "Client CA file: owned by root", owner(_authority), "see 1.1.19"),
    _row("4.1.9", "Kubelet configuration: mode 600", mode(_configuration, 0o600)),
    _row("4.1.10", "Kubelet configuration: owned by root", owner(_configuration)),
    _row("4.2.1", "Anonymous requests are rejected", _anonymous),
    _row("4.2.2", "Authorization is not AlwaysAllow", _authorization),
    _row("4.2.3", "Client certificates are verified", _client_ca),
    _row("4.2.4", "There is no read-only port", _read_only, "passes; there is no read-only port"),
    _row("4.2.5", "Idle streaming connections time out", _idle, "passes; after 4 hours"),
    _row(
        "4.2.6",
        "The kubelet keeps its iptables chains",
        _localnet,
        "passes; a table of nftables drops packets to loopback addresses",
    ),
    _row(
        "4.2.7",
        "The node name is the host name",
        _host_name,
        "passes; `--node-name` can set another name",
    ),
    _row("4.2.8", "Events are not dropped", _elsewhere(_EVENTS), "N/A: " + _EVENTS),
    _row("4.2.9", "The kubelet has a serving certificate", _certificate),
    _row("4.2.10", "The client certificate is renewed", _rotates),
    _row(
        "4.2.11",
        "The serving certificate is renewed",
        _serving_rotates,
        "passes; `wherry up` renews it on the first machine",
    ),
    _row("4.2.12", "Only strong cipher suites are accepted", _ciphers),
    _row(
        "4.2.13",
        "The number of a pod's processes is limited",
        _processes,
        "no limit, as upstream, because no number fits all pods; set `podPidsLimit`",
    ),
    _row("4.2.14", "seccomp is on by default", _seccomp),
    _row("4.3.1", "The proxy serves metrics on loopback only", _metrics),
)
