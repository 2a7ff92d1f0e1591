"""Translates policies to one nftables table a family: address sets, a chain a policy, and maps from pod to chains. No I/O.

Base chains (base_chains.py) close addresses that no pod is known to have, and let pass what belongs to an accepted connection,
and what a pod sends to itself. Then one map look-up leads from the address of an isolated pod to a chain for exactly the
policies that select it; it tries each of theirs and drops what none allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from netproxy.policy.base_chains import ITSELF, LOCAL_PODS, base_chains
from netproxy.policy.member_elements import ElementKind
from netproxy.policy.model import DIRECTIONS, INGRESS, Policy
from netproxy.policy.policy_rules import PolicyRules, comment
from netproxy.policy.ruleset import Part, PolicyPart, Ruleset
from netproxy.policy.selections import Selection
from netproxy.policy.selector import Selector
from netproxy.policy.table import SLICE, PolicyTable
from netproxy.slices import run_to_end


class RulesetBuilder:
    """Makes one family's rulesets. A selection keeps its elements, so that a member that changes costs itself alone."""

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
        self._kept: dict[object, tuple[PolicyPart, dict[Selector, Selection]]] = {}
        """Parts for which selections keep elements, with those."""
        self._uses: Counter[tuple[Selector, ElementKind]] = Counter()
        """Number of parts for which a selection keeps elements of a kind."""
        self._version = 0
        """That of `_parts`."""
        self._changed: set[Selector] = set()
        self._parts: dict[object, PolicyPart] = {}
        self._prepared: dict[object, PolicyPart] = {}
        """Parts of new policies, without the members of selections."""

    def prepare(self) -> Iterator[None]:
        """Make the rules of policies and the elements of selections in slices, so that `build` has little to do."""
        changed = self.table.selections.changed_since(self._version)
        wanted: dict[Selector, list[ElementKind]] = {}
        new: list[tuple[str, Policy]] = []
        for subject, _ in self.table.subjects_here():
            for policy in self.table.subjects.allowing(subject).values():
                for direction in policy.allowing:
                    known = self._parts.get((direction, policy.key))
                    if known and known.policy is policy:
                        for selector in known.selections.keys() & changed:
                            wanted.setdefault(selector, []).extend(known.kinds_of(selector))
                    else:
                        new.append((direction, policy))
        for direction, policy in new:
            part = self._prepared[direction, policy.key] = yield from self._rules.new_part(direction, policy)
            for selector in part.selections:
                wanted.setdefault(selector, []).extend(part.kinds_of(selector))
        count = 0
        for selector, kinds in wanted.items():
            selection = self.table.selections.get(selector)
            if selection is not None:  # its last policy may have gone meanwhile
                count += selection.cost(self.family, kinds) + 1
                yield from selection.make_elements(self.family, kinds)
            if count >= SLICE:
                count = 0
                yield

    def build(self, closed: Collection[str] | None = None) -> Ruleset:
        """Return the ruleset for what the table holds now, without the rules of policies that are `closed`."""
        self._excluded = self.closed if closed is None else closed
        out, base = Ruleset(), Part()
        self._changed, self._version = self.table.selections.changed_since(self._version), self.table.selections.version
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
        if closed is None:
            self._forget_unused()
        return out

    def clear(self) -> None:
        """Forget all parts, when there is no policy any more."""
        self._parts, self._prepared = {}, {}
        self._forget_unused()

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

    def _fill(self, part: PolicyPart, selectors: Iterable[Selector]) -> None:
        """Write the members of selections into the sets for them."""
        for selector in selectors:
            part.fill(selector, self.table.selections[selector].elements(self.family, part.kinds_of(selector)))

    def _forget_unused(self) -> None:
        """Let selections no longer keep elements that no part has."""
        gone = [key for key, (part, _) in self._kept.items() if not _same_policy(self._parts.get(key), part)]
        before = [self._kept.pop(key) for key in gone]
        for key, part in self._parts.items():
            if key not in self._kept:
                self._kept[key] = part, {each: self.table.selections[each] for each in part.selections}
                self._uses.update((each, kind) for each in part.selections for kind in part.kinds_of(each))
        for part, selections in before:
            for selector, selection in selections.items():
                for kind in part.kinds_of(selector):
                    self._uses[selector, kind] -= 1
                    if not self._uses[selector, kind]:
                        del self._uses[selector, kind]
                        selection.forget_elements(self.family, kind)


def _same_policy(one: PolicyPart | None, other: PolicyPart) -> bool:
    return one is not None and one.policy is other.policy
