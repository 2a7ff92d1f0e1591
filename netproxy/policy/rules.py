"""Translates policies to one nftables table a family: address sets, a chain a policy, and maps from pod to chains. No I/O.

Base chains (base_chains.py) close addresses that no pod is known to have, and let pass what belongs to an accepted connection,
and what a pod sends to itself. Then one map look-up leads from the address of an isolated pod to a chain for exactly the
policies that select it; it tries each of theirs and drops what none allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from netproxy.policy.base_chains import ITSELF, LOCAL_PODS, base_chains
from netproxy.policy.model import DIRECTIONS, INGRESS, Policy, Port
from netproxy.policy.policy_rules import PolicyRules, comment
from netproxy.policy.ruleset import Part, PolicyPart, Ruleset
from netproxy.policy.selector import Selector
from netproxy.policy.table import SLICE, PolicyTable
from netproxy.slices import run_to_end


class RulesetBuilder:
    """Makes one family's rulesets. A selection's elements are kept until its members change."""

    def __init__(self, table: PolicyTable, family: int, *, bridge: str = "cni0", ipvs: bool = False) -> None:
        """`bridge` is the pods' bridge. `ipvs` means that IPVS translates Services: its packets pass hook `output`."""
        self.table, self.family, self._bridge, self._ipvs = table, family, bridge, ipvs
        self.ranges: tuple[str, ...] = ()
        """The ranges of addresses of this node's pods."""
        self.closed: frozenset[str] = frozenset()
        """Policies by key whose rules are left out: they isolate pods and allow nothing."""
        self._excluded: Collection[str] = ()
        self._address = "ipv4_addr" if family == 4 else "ipv6_addr"
        self._rules = PolicyRules(family)
        self._cached: dict[Selector, dict[str, str]] = {}
        """The elements of selections, as they were at `_cached_version`."""
        self._cached_version = 0
        self._version = 0
        """That of `_parts`."""
        self._changed: set[Selector] = set()
        self._parts: dict[object, PolicyPart] = {}
        self._prepared: dict[object, PolicyPart] = {}
        """Parts of new policies, without the members of selections."""

    def prepare(self) -> Iterator[None]:
        """Make the rules of policies and the elements of selections in slices, so that `build` has little to do."""
        self._forget_changed()
        changed = self.table.selections.changed_since(self._version)
        wanted: set[Selector] = set()
        new: list[tuple[str, Policy]] = []
        for subject, _ in self.table.subjects_here():
            for policy in self.table.subjects.allowing(subject).values():
                for direction in policy.allowing:
                    known = self._parts.get((direction, policy.key))
                    if known and known.policy is policy:
                        wanted |= known.selections.keys() & changed
                    else:
                        wanted |= policy.peers
                        new.append((direction, policy))
        for direction, policy in new:
            self._prepared[direction, policy.key] = yield from self._rules.new_part(direction, policy)
        count = 0
        for selector in wanted:
            if selector in self.table.selections:  # its last policy may have gone meanwhile
                count += len(self._addresses_of(selector)) + 1
            if count >= SLICE:
                count = 0
                yield

    def _forget_changed(self) -> None:
        for selector in self.table.selections.changed_since(self._cached_version):
            self._cached.pop(selector, None)
        self._cached_version = self.table.selections.version

    def build(self, closed: Collection[str] | None = None) -> Ruleset:
        """Return the ruleset for what the table holds now, without the rules of policies that are `closed`."""
        self._excluded = self.closed if closed is None else closed
        out, base = Ruleset(), Part()
        self._changed, self._version = self.table.selections.changed_since(self._version), self.table.selections.version
        self._forget_changed()
        local = self._local_addresses()
        base.declarations[LOCAL_PODS] = f"set {LOCAL_PODS} {{ type {self._address} ; }}"
        base.elements[LOCAL_PODS] = dict.fromkeys(local, "")
        base.declarations[ITSELF] = f"set {ITSELF} {{ type {self._address} . {self._address} ; }}"
        itself = base.elements[ITSELF] = {}
        parts: dict[object, PolicyPart] = {}
        for direction in DIRECTIONS:
            selected = self._policies_of_pods(direction)
            verdicts: dict[str, str] = {}
            for ip, key in local.items():
                policies = selected.get(key)
                if policies is not None:
                    verdicts[ip] = f"goto {self._chain_of(direction, policies, base, parts)}"
                    itself[f"{ip} . {ip}"] = ""
            name = f"{direction}-pods"
            base.declarations[name] = f"map {name} {{ type {self._address} : verdict ; }}"
            base.elements[name] = verdicts
        isolated = self._isolates(INGRESS)
        base.chains |= base_chains(self.family, self.ranges, bridge=self._bridge, isolated=isolated, ipvs=self._ipvs)
        for each, part in parts.items():
            out.add(each, part)
        out.add("", base)
        self._parts, self._prepared = parts, {}
        if len(self._cached) > 2 * len(out.elements):
            self._cached = {
                each: cached for each, cached in self._cached.items() if self._rules.name("pods", each) in out.elements
            }
        return out

    # -- pods of this node ----------------------------------------------------------------------------------------
    def _local_addresses(self) -> dict[str, str]:
        """Return the pod of each address. Of two pods with the same address the older is ending, so the younger has it."""
        here = [(pod.created, key, pod) for key, pod in self.table.known.here.items()]
        found = {
            ip: key for _, key, pod in sorted(here, key=lambda each: each[:2]) for ip in pod.addresses(self.family)
        }
        return {ip: key for ip, key in found.items() if ip not in self.table.unusable}

    def _isolates(self, direction: str) -> bool:
        """Return whether a policy isolates any pod of this node, also one that has no address yet."""
        return any(self.table.subjects.isolates(selector, direction) for selector, _ in self.table.subjects_here())

    def _policies_of_pods(self, direction: str) -> dict[str, list[Policy]]:
        """Return the pods of this node that are isolated, with the policies that allow something to them."""
        selected: dict[str, list[Policy]] = {}
        allowing: dict[str, Policy] = {}
        for selector, pods in self.table.subjects_here():
            if self.table.subjects.isolates(selector, direction):
                selected |= {pod: [] for pod in pods}
                allowing |= self.table.subjects.allowing(selector)
        for key, policy in sorted(allowing.items()):
            if direction in policy.allowing and key not in self._excluded:
                for pod in self.table.members_here(policy.subject):
                    selected[pod].append(policy)
        return selected

    # -- chains ---------------------------------------------------------------------------------------------------
    def _chain_of(self, direction: str, policies: list[Policy], out: Part, parts: dict[object, PolicyPart]) -> str:
        """Return the chain for pods to which exactly these policies allow something, with theirs."""
        name = self._rules.name(f"{direction}-all", *(policy.key for policy in policies))
        if name not in out.chains:
            rules = []
            for policy in policies:
                if (direction, policy.key) not in parts:
                    parts[direction, policy.key] = self._part(direction, policy)
                rules.append(f"jump {self._rules.name(direction, policy.key)} {comment(policy.key)}")
            out.chains[name] = (*rules, "drop")
        return name

    def _part(self, direction: str, policy: Policy) -> PolicyPart:
        """Return a policy's part; the last one where nothing in it changed."""
        known = self._parts.get((direction, policy.key))
        if known is None or known.policy is not policy:
            prepared = self._prepared.get((direction, policy.key))
            fits = prepared is not None and prepared.policy is policy
            part = prepared if prepared and fits else run_to_end(self._rules.new_part(direction, policy))
            self._fill(part, part.selections)
            return part
        stale = known.selections.keys() & self._changed
        if not stale:
            return known
        part = PolicyPart(known.declarations, dict(known.elements), known.chains, policy, known.selections, known.named)
        self._fill(part, stale)
        return part

    def _fill(self, part: PolicyPart, selections: Iterable[Selector]) -> None:
        """Write the members of selections into the sets for them."""
        for selector in selections:
            for name in part.selections[selector]:
                part.elements[name] = self._addresses_of(selector)
            part.elements |= self._named_elements(selector, part.named.get(selector, {}))

    def _addresses_of(self, selector: Selector) -> dict[str, str]:
        cached = self._cached.get(selector)
        if cached is None:
            members = self.table.members(selector).values()
            cached = self._cached[selector] = {ip: "" for pod in members for ip in pod.addresses(self.family)}
        return cached

    def _named_elements(self, target: Selector, sets: Mapping[str, Port]) -> dict[str, dict[str, str]]:
        """Return the elements of sets of named ports."""
        found: dict[str, dict[str, str]] = {name: {} for name in sets}
        by_port = {(port.name, port.protocol): found[name] for name, port in sets.items()}
        for pod in self.table.members(target).values() if sets else ():
            for each in pod.ports:
                elements = by_port.get((each.name, each.protocol))
                if elements is not None:
                    elements.update(dict.fromkeys((f"{ip} . {each.number}" for ip in pod.addresses(self.family)), ""))
        return found
