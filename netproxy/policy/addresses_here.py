"""Addresses of this node's pods: those that the CNI plugins gave to them, and until these are known, those in their statuses.

A status is late. A pod whose sandbox ended, which it can bring about itself, is in a new one with another address before its
status says so; and the old address may be another pod's by then. No I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from netproxy.pod_addresses import GivenAddresses
from netproxy.policy.pod_facts import PodFacts


class AddressesHere:
    """Puts addresses into the facts of pods."""

    def __init__(self) -> None:
        self._given: GivenAddresses = {}
        self._holders: dict[str, set[str]] = {}
        """UIDs of the pods to which an address was given; "" where nobody says whose it is."""
        self._pods: dict[str, PodFacts] = {}
        """Pods of this node by key, with the addresses of their statuses."""

    def set_given(self, given: GivenAddresses) -> Iterator[tuple[str, PodFacts]]:
        """Store what the CNI plugins gave; yield the pods that have other addresses now."""
        before = {key: self._facts(key, pod) for key, pod in self._pods.items()}
        self._given = given
        self._holders = {}
        for uid, each in given.items():
            for ip in each.addresses:
                self._holders.setdefault(ip, set()).add(uid)
        for key, was in before.items():
            now = self._facts(key, self._pods[key])
            if now.ips != was.ips:
                yield key, now

    def facts(self, key: str, pod: PodFacts | None) -> PodFacts | None:
        """Store a pod as the API has it, None for one that is gone; return it with its addresses."""
        if pod is None or not pod.here:
            self._pods.pop(key, None)
            return pod
        self._pods[key] = pod
        return self._facts(key, pod)

    def given_to_another(self, pod: PodFacts) -> bool:
        """Return whether the CNI plugins gave any address of a pod to another one."""
        holders = (self._holders.get(ip) for ip in pod.ips)
        return any(uids and uids.isdisjoint((pod.uid, pod.static_uid, "")) for uids in holders)

    def clear(self) -> None:
        """Forget the pods, when they are no longer watched."""
        self._pods.clear()

    def _facts(self, key: str, pod: PodFacts) -> PodFacts:
        uid = pod.uid
        if uid not in self._given and pod.static_uid and (static := self._given.get(pod.static_uid)) is not None:
            uid = pod.static_uid if static.pod == key else uid
        given = self._given.get(uid) if uid else None
        ips = given.addresses if given is not None else pod.ips
        holders = ((ip, self._holders.get(ip, (uid,))) for ip in ips)
        ips = tuple(ip for ip, uids in holders if uid in uids or "" in uids)
        return pod if ips == pod.ips else dataclasses.replace(pod, ips=ips)
