"""Network policies in front of a Service's pods: those that let no connection reach a port, and those that let some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from kube.api import core_v1, networking_v1
from kube.object_names import name_of, namespace_of
from kube.selectors import LabelSelector, from_label_selector
from wherry.why import commands
from wherry.why.causes.pod_ports import Rule, of_pod, of_rule
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

Policy = networking_v1.NetworkPolicy
INGRESS, EGRESS = "Ingress", "Egress"
MOST_PEERS, MOST_COMPARED, LONGEST_PEER = 5, 200, 500
"""Peers in a text, those that it is made from, and the characters of one."""
MOST_NAMES = 5
"""Policies in a text."""
MOST_RULES = 40
"""Rules of a policy, and ports and peers in all of them, that a command contains."""


async def blocked(
    diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], ports: Sequence[core_v1.ServicePort]
) -> Sequence[Cause]:
    """Return a cause for a port of a Service that no policy opens on a pod which policies isolate."""
    for pod in pods:
        await diagnosis.time_slice.step()
        policies = await isolating(diagnosis, pod, INGRESS)
        for number, protocol in await _numbers(diagnosis, pod, ports) if policies else ():
            if await anext(_opening(diagnosis, policies, number, protocol, pod), None) is None:
                return [_closed(pod, policies, number, protocol)]
    return ()


async def limited(
    diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], ports: Sequence[core_v1.ServicePort]
) -> Sequence[Cause]:
    """Return a cause for a port of a Service that policies open for some peers only."""
    for pod in pods:
        await diagnosis.time_slice.step()
        policies = await isolating(diagnosis, pod, INGRESS)
        for number, protocol in await _numbers(diagnosis, pod, ports) if policies else ():
            peers: list[networking_v1.NetworkPolicyPeer] = []
            async for rule in _opening(diagnosis, policies, number, protocol, pod):
                if not rule.from_:
                    break
                peers += rule.from_
            else:
                if peers:
                    return [_some(pod, policies, number, peers)]
    return ()


async def isolating(diagnosis: Diagnosis, pod: core_v1.Pod, direction: str) -> list[Policy]:
    """Return the policies that isolate a pod for connections to it (Ingress) or from it (Egress)."""
    if pod.spec.host_network:
        return []
    return [each for each in await diagnosis.once(_selecting, pod) if direction in types_of(each)]


def types_of(policy: Policy) -> Sequence[str]:
    """Return the directions that a policy isolates pods for."""
    return policy.spec.policy_types or [INGRESS, *([EGRESS] if policy.spec.egress else [])]


def names(policies: Sequence[Policy]) -> str:
    """Return the names of policies as the subject of a sentence, with the verb "let"."""
    text = joined([name_of(each) for each in policies])
    return f"network policies {text} let" if len(policies) > 1 else f"network policy {text} lets"


def joined(texts: Sequence[str]) -> str:
    """Return texts as a list in a sentence, of which some are left out if there are many."""
    more = [f"{len(texts) - MOST_NAMES} more"] if len(texts) > MOST_NAMES else []
    return " and ".join([*texts[:MOST_NAMES], *more])


async def _selecting(diagnosis: Diagnosis, pod: core_v1.Pod) -> list[Policy]:
    """Return the policies that select a pod."""
    found: list[Policy] = []
    for each in await diagnosis.reader.all(networking_v1.NetworkPolicy, namespace_of(pod)):
        await diagnosis.time_slice.step()
        if (await diagnosis.once(_selector, each)).matches(pod.metadata.labels):
            found.append(each)
    return found


async def _selector(diagnosis: Diagnosis, policy: Policy) -> LabelSelector:
    return from_label_selector(policy.spec.pod_selector or {})


async def _numbers(
    diagnosis: Diagnosis, pod: core_v1.Pod, ports: Sequence[core_v1.ServicePort]
) -> list[tuple[int, str]]:
    """Return the numbers and protocols of a pod's ports that a Service's ports lead to."""
    own = await of_pod(diagnosis, pod)
    found = [(own.number_at(port), port.protocol or "TCP") for port in ports]
    return [(number, protocol) for number, protocol in found if number is not None]


async def _opening(
    diagnosis: Diagnosis, policies: Iterable[Policy], number: int, protocol: str, pod: core_v1.Pod
) -> AsyncIterator[networking_v1.NetworkPolicyIngressRule]:
    """Yield the rules that open a port of a pod."""
    own = await of_pod(diagnosis, pod)
    for rule in (rule for each in policies for rule in each.spec.ingress):
        await diagnosis.time_slice.step()
        if (await of_rule(diagnosis, rule)).opens(number, protocol, own):
            yield rule


def _closed(pod: core_v1.Pod, policies: Sequence[Policy], number: int, protocol: str) -> Cause:
    first = policies[0]
    text = (
        f"{names(policies)} no connection reach port {number} of {reference(pod)}; the command lets the pods of namespace "
        f"{namespace_of(pod)} reach it on all pods that {name_of(first)} selects"
    )
    rule = {"from": [{"podSelector": {}}], "ports": [{"port": number, "protocol": protocol}]}
    return Cause(text, with_rule(first, INGRESS, rule), reference(first))


def with_rule(policy: Policy, direction: str, rule: object) -> str:
    """Return the command that adds a rule to a policy. A patch has all rules: of a policy with many, it is for an editor."""
    field = "egress" if direction == EGRESS else "ingress"
    rules = getattr(policy.spec, field)
    if len(rules) <= MOST_RULES and sum(map(_parts, rules)) <= MOST_RULES:
        plain: list[object] = msgspec.to_builtins(rules)
        return commands.patch(reference(policy), {"spec": {field: [*plain, rule]}}, merge=True)
    return commands.edit(reference(policy))


def _parts(rule: Rule) -> int:
    return len(rule.ports) + len(rule.to if isinstance(rule, networking_v1.NetworkPolicyEgressRule) else rule.from_)


def _some(
    pod: core_v1.Pod, policies: Sequence[Policy], number: int, peers: Sequence[networking_v1.NetworkPolicyPeer]
) -> Cause:
    texts = dict.fromkeys(peer_text(peer, namespace_of(pod)) for peer in peers[:MOST_COMPARED])
    shown = [each if len(each) <= LONGEST_PEER else each[:LONGEST_PEER] + "..." for each in texts]
    hidden = len(shown) - MOST_PEERS if len(peers) <= MOST_COMPARED else len(peers) - MOST_PEERS
    more = f" and {hidden} more" if hidden > 0 else ""
    named = joined([f"network policy {name_of(each)}" for each in policies])
    text = f"only {', '.join(shown[:MOST_PEERS])}{more} may connect to port {number} of {reference(pod)} ({named})"
    return Cause(text, commands.edit(reference(policies[0])), reference(policies[0]), partial=True)


def peer_text(peer: networking_v1.NetworkPolicyPeer, namespace: str) -> str:
    """Return the peers that a rule of a policy in a namespace means, for people."""
    if peer.ip_block is not None:
        less = f" without {', '.join(peer.ip_block.except_)}" if peer.ip_block.except_ else ""
        return f"addresses in {peer.ip_block.cidr}{less}"
    pods = str(from_label_selector(peer.pod_selector)) if peer.pod_selector is not None else ""
    where = str(from_label_selector(peer.namespace_selector)) if peer.namespace_selector is not None else ""
    text = f"pods with {pods}" if pods else "pods"
    if peer.namespace_selector is None:
        return f"{text} of namespace {namespace}"
    return f"{text} of namespaces with {where}" if where else f"{text} of all namespaces"
