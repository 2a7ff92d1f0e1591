"""`wherry upgrade --check`: checks of the facts before an upgrade, each a row with its fix. Pure functions.

Versions follow upstream's version skew policy (https://kubernetes.io/releases/version-skew-policy/): one minor version at a
time, API servers at most one apart, kubelets never newer than an API server and at most three older.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from kube.log_lines import escaped
from kube.urls import host_port
from wherry.check import MIN_DISK_BYTES
from wherry.errors import UsageError
from wherry.output import GAP, size
from wherry.snapshot_catalog import Entry
from wherry.upgrade_facts import Facts
from wherry.wrapping import beside, wrapped

OK, WARNING, ERROR = "ok", "warning", "error"
OLDER_KUBELETS = 3
YOUNG = timedelta(hours=24)
MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a check; `fix` is empty if it is ok."""

    result: str
    check: str
    found: str
    fix: str = ""


HEADINGS = Row("RESULT", "CHECK", "FOUND")


def as_data(row: Row) -> dict[str, str]:
    return asdict(row)


def lines(found: Sequence[Row]) -> Iterator[str]:
    """Yield a table of 80 columns, with each fix below what was found."""
    shown = (HEADINGS, *found)
    widths = max(len(row.result) for row in shown) + GAP, max(len(row.check) for row in shown) + GAP
    for row in shown:
        start = f"{row.result:{widths[0]}}{row.check:{widths[1]}}"
        yield from beside(start, escaped(row.found))
        if row.fix:
            yield from wrapped(f"fix: {escaped(row.fix)}", len(start))


def minor(version: str) -> int | None:
    """Return the minor version of v1.N and 1.N.P with anything after it; None if it is no version."""
    found = re.match(r"v?1\.([0-9]{1,4})(?![0-9])", version)
    return int(found[1]) if found else None


def require_version(text: str) -> str:
    """Return a version with its v; raises WherryError if it is none."""
    if minor(text) is None or not re.fullmatch(r"v?[0-9A-Za-z.+-]{1,64}", text):
        raise UsageError(f"--to {text}: write a version such as v1.37.0")
    return text if text.startswith("v") else f"v{text}"


def rows(facts: Facts, config_problems: Sequence[str] = ()) -> Iterator[Row]:
    """Run all checks; a worker has only those of itself."""
    if facts.problem:
        yield Row(ERROR, "API server", facts.problem, "`wherry status` shows what is wrong")
    if facts.version:
        yield _version(facts)
        checks: Sequence[Callable[[Facts], Iterator[Row]]] = (_nodes,) if facts.settings.is_worker else _OF_THE_CLUSTER
        for each in checks:
            yield from each(facts)
    yield from _machine(facts)
    yield from _configuration(facts, config_problems)
    if not facts.settings.is_worker:
        yield _snapshot(facts)


def _version(facts: Facts) -> Row:
    name, change = "version", f"{facts.version} to {facts.target}"
    before, after = minor(facts.version), minor(facts.target)
    if before is None or after is None:
        return Row(WARNING, name, change, "compare the versions by hand: one of them is unusual")
    if facts.settings.is_worker:
        if after > before:
            fix = "upgrade the control plane first: a node must not be newer"
            return Row(ERROR, name, f"the API server has {facts.version}, this machine would have {facts.target}", fix)
        return Row(OK, name, f"the API server has {facts.version}, this machine would have {facts.target}")
    if after - before > 1:
        return Row(ERROR, name, change, f"upgrade to v1.{before + 1} first: one minor version at a time")
    if after < before:
        return Row(
            WARNING, name, change, "this is a downgrade: if the old version cannot read an object, restore a snapshot"
        )
    return Row(OK, name, change)


def _members(facts: Facts) -> Iterator[Row]:
    after, apart = minor(facts.target), []
    own = host_port(facts.settings.node_ip, facts.settings.api_port)
    for member in facts.members:
        version = after if member.address == own else minor(member.version)
        if member.problem:
            fix = "start it, or remove the machine from the cluster"
            yield Row(WARNING, "members", f"{member.address}: {member.problem}", fix)
        elif version is not None and after is not None and abs(version - after) > 1:
            apart.append(f"{member.address} has {member.version}")
    if apart:
        yield Row(ERROR, "members", _names(apart), f"bring them within one minor version of {facts.target} first")
    elif facts.members and not any(member.problem for member in facts.members):
        versions = ", ".join(sorted({member.version for member in facts.members}))
        yield Row(OK, "members", f"{len(facts.members)} with {versions}")


def _nodes(facts: Facts) -> Iterator[Row]:
    after, newer, older = minor(facts.target), [], []
    for node in facts.nodes:
        version = minor(node.version)
        if version is None or after is None or node.name == facts.settings.node_name:
            continue  # its own node gets the new version with the machine
        if version > after:
            newer.append(f"{node.name} has {node.version}")
        if after - version > OLDER_KUBELETS:
            older.append(f"{node.name} has {node.version}")
    if newer:
        yield Row(ERROR, "nodes", _names(newer), "a node must not be newer than the API server: downgrade it first")
    if older:
        fix = f"upgrade them first: nodes may be {OLDER_KUBELETS} minor versions older than {facts.target}"
        yield Row(ERROR, "nodes", _names(older), fix)
    if facts.nodes and not newer and not older:
        versions = ", ".join(sorted({node.version for node in facts.nodes}))
        yield Row(OK, "nodes", f"{len(facts.nodes)} with {versions}")
    for result, away in (
        (ERROR, [node.name for node in facts.nodes if not node.ready and node.control_plane]),
        (WARNING, [node.name for node in facts.nodes if not node.ready and not node.control_plane]),
    ):
        if away:
            yield Row(
                result, "ready nodes", f"not Ready: {_names(away)}", "`kubectl describe node NAME` shows the reason"
            )
    if facts.nodes and all(node.ready for node in facts.nodes):
        yield Row(OK, "ready nodes", "all are Ready")


def _deprecated(facts: Facts) -> Iterator[Row]:
    after, found = minor(facts.target), dict[str, str]()
    for member in facts.members:
        found |= dict(member.deprecated)
    name = "deprecated APIs"
    gone = [api for api, release in found.items() if after is not None and (minor(release) or after + 1) <= after]
    later = [f"{api} (removed in {release})" for api, release in found.items() if release and api not in gone]
    stay = [api for api, release in found.items() if not release]
    if gone:
        fix = "change the clients that request them; the audit log names them"
        yield Row(ERROR, name, f"{_names(sorted(gone))}: requested since the start, and not in {facts.target}", fix)
    if later:
        yield Row(WARNING, name, f"requested: {_names(sorted(later))}", "change the clients; the audit log names them")
    if not gone and not later and any(not member.problem for member in facts.members):
        note = f"; deprecated, with no release that removes them: {_names(sorted(stay))}" if stay else ""
        yield Row(OK, name, f"none that a release removes was requested since the API servers started{note}")


def _definitions(facts: Facts) -> Iterator[Row]:
    name = "stored versions"
    unserved = [f"{crd} {version}" for crd, version, served in facts.definitions if not served]
    served = [f"{crd} {version}" for crd, version, is_served in facts.definitions if is_served]
    how = "write each object once (`kubectl get -o json | kubectl replace -f -`), then remove it from status.storedVersions"
    if unserved:
        yield Row(ERROR, name, f"no longer served: {_names(unserved)}", f"serve the version again; {how}")
    if served:
        yield Row(WARNING, name, f"besides the current one: {_names(served)}", how)
    if not facts.definitions:
        yield Row(OK, name, "custom resources are stored in their current versions")


def _services(facts: Facts) -> Iterator[Row]:
    if facts.unavailable:
        fix = "`kubectl describe apiservice NAME` shows the reason; discovery is incomplete meanwhile"
        yield Row(WARNING, "extension servers", f"not available: {_names(facts.unavailable)}", fix)
    else:
        yield Row(OK, "extension servers", "all are available")


def _budgets(facts: Facts) -> Iterator[Row]:
    if facts.budgets:
        fix = "an upgrade keeps containers running; before `kubectl drain`, add replicas or relax them"
        yield Row(WARNING, "disruption budgets", f"allow no eviction: {_names(facts.budgets)}", fix)
    else:
        yield Row(OK, "disruption budgets", "all allow an eviction")


_OF_THE_CLUSTER = (_members, _nodes, _deprecated, _definitions, _services, _budgets)


def _machine(facts: Facts) -> Iterator[Row]:
    if facts.unhealthy:
        fix = "`wherry status` and `wherry logs` show the reason"
        yield Row(ERROR, "daemons", "; ".join(facts.unhealthy), fix)
    else:
        yield Row(OK, "daemons", "all of this machine run")
    for finding in facts.missing:
        fix = f"`{finding.fix}`" if finding.is_command else finding.fix  # no line ends within backquotes
        yield Row(ERROR, "machine", finding.what, fix)
    for ending in facts.endings:
        yield Row(WARNING, "certificates", ending.what, ending.fix)
    if not facts.endings:
        yield Row(OK, "certificates", "none ends within a month")
    where = facts.settings.layout.state
    if facts.free < MIN_DISK_BYTES:
        yield Row(ERROR, "disk", f"{size(facts.free)} free under {where}", f"free {size(MIN_DISK_BYTES)} or more")
    else:
        yield Row(OK, "disk", f"{size(facts.free)} free under {where}")


def _configuration(facts: Facts, problems: Sequence[str]) -> Iterator[Row]:
    for problem in problems:
        yield Row(ERROR, "configuration", problem, "correct it; `wherry config validate` checks it")
    if not problems:
        note = "" if facts.own else "; only the new version's program knows its own options"
        file = facts.settings.layout.config
        found = f"{file} has no unknown key{note}" if file.exists() else f"there is no file {file}"
        yield Row(OK, "configuration", found)


def _snapshot(facts: Facts) -> Row:
    name, fix = "snapshot", "`wherry snapshot save --name before-upgrade`"
    good = [entry for entry in facts.snapshots if not entry.problem]
    if facts.snapshots_problem:
        return Row(WARNING, name, facts.snapshots_problem, fix)
    if not good:
        return Row(ERROR, name, "there is none", fix)
    last: Entry = max(good, key=lambda entry: entry.taken)
    age = facts.now - datetime.fromtimestamp(last.taken, facts.now.tzinfo)
    text = f"the last one is from {last.time}: {last.path}"
    return Row(OK, name, text) if age <= YOUNG else Row(ERROR, name, text, fix)


def _names(names: Sequence[str]) -> str:
    """Return names with commas between them, the first ones of many."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
