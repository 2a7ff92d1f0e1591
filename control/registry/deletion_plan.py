"""Plans a deletion: immediately, after a grace period, or when the last finalizer is removed. Decides and writes nothing.

A graceful deletion first only sets deletionTimestamp and deletionGracePeriodSeconds; whoever runs the object (the kubelet)
deletes it again with grace 0. Finalizers hold an object back in the same marked state. The propagation policy becomes
a finalizer (`orphan`, `foregroundDeletion`) that the garbage collector takes off when it has done its part. The rules
are those of apiserver's rest/delete.go and registry/store.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from kube import errors
from kube.clock import after, format_time, parse_time
from kube.json_object import Object

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_ENDLESS = 100 * 365 * 24 * 3600
"""Grace period in seconds from which on the deletion is not awaited."""


class DeleteOptions(msgspec.Struct):
    """A delete's options, read from its body and query. Seconds."""

    grace_period: int | None = None
    propagation: str | None = None
    orphan_dependents: bool | None = None
    preconditions: Object | None = None
    dry_run: bool = False

    @property
    def accepted(self) -> bool:
        """True for a foreground deletion: if the object still exists the response is 202."""
        return self.orphan_dependents is False or self.propagation == "Foreground"

    def shown(self) -> Object:
        """Return what was requested as fields of meta.k8s.io/v1 DeleteOptions."""
        found = {
            "gracePeriodSeconds": self.grace_period,
            "propagationPolicy": self.propagation,
            "orphanDependents": self.orphan_dependents,
            "preconditions": self.preconditions,
            "dryRun": ["All"] if self.dry_run else None,
        }
        return {name: value for name, value in found.items() if value is not None}


Outcome = Literal["delete", "mark", "pending"]


def plan(
    metadata: Object,
    options: DeleteOptions,
    grace: int | None,
    now: datetime,
    *,
    orphans: bool = False,
    has_dependents: bool = True,
) -> Outcome:
    """Decide, and change `metadata` accordingly: delete now, write the marked object, or nothing to do.

    `grace` is the kind's answer to the request: None if it knows no graceful deletion. `orphans` says whether the kind
    leaves dependents where neither options nor finalizers name a policy. Without `has_dependents` a policy has no effect.
    """
    before = dict(metadata)
    present = metadata.get("finalizers") or []
    finalizers = _finalizers(present, options, orphans=orphans) if has_dependents else _without_policy(present)
    if finalizers:
        metadata["finalizers"] = finalizers
    elif "finalizers" in metadata:
        del metadata["finalizers"]
    outcome = _graceful(metadata, options, grace, now) if grace is not None else "delete"
    if outcome == "delete":
        if not finalizers:
            return "delete"
        if metadata.get("deletionTimestamp") is None:
            _mark(metadata, 0, now)
        else:
            metadata["deletionGracePeriodSeconds"] = 0
    return "mark" if metadata != before else "pending"


def _graceful(metadata: Object, options: DeleteOptions, grace: int, now: datetime) -> Outcome:
    marked = metadata.get("deletionTimestamp")
    if marked is not None:
        before = metadata.get("deletionGracePeriodSeconds")
        if before is None or before == 0:
            return "delete" if grace == 0 else "pending"
        if options.grace_period is None or grace >= before:
            return "pending"
        # Only a shorter grace may follow: the moment of deletion moves back by as much.
        moved = after(parse_time(marked), grace - before)
        endless = before > _ENDLESS  # then what is marked is the calendar's end and says nothing of the beginning
        metadata["deletionTimestamp"] = format_time(after(now, grace) if endless else moved)
        metadata["deletionGracePeriodSeconds"] = grace
        return "mark" if grace else "delete"
    if grace == 0:
        return "delete"
    _mark(metadata, grace, now)
    return "mark"


def _mark(metadata: Object, grace: int, now: datetime) -> None:
    metadata["deletionTimestamp"] = format_time(after(now, grace))
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1


def _finalizers(present: list[str], options: DeleteOptions, *, orphans: bool) -> list[str]:
    """Return the finalizers with those that the propagation policy wants, and without those it does not."""
    if options.orphan_dependents is not None:
        wanted = ORPHAN if options.orphan_dependents else ""
    elif options.propagation is not None:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.propagation, "")
    elif orphans and ORPHAN not in present and FOREGROUND not in present:
        wanted = ORPHAN
    else:
        return present
    rest = _without_policy(present, wanted)
    return [*rest, wanted] if wanted and wanted not in rest else rest


def _without_policy(present: list[str], wanted: str = "") -> list[str]:
    """Return the finalizers without those of other policies than `wanted`."""
    return [f for f in present if f not in (ORPHAN, FOREGROUND) or f == wanted]


def ready_to_go(metadata: Object) -> bool:
    """Return whether a marked object has nothing left to wait for (after an update that took a finalizer off)."""
    return (
        metadata.get("deletionTimestamp") is not None
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def read_options(body: Object, query: dict[str, list[str]]) -> DeleteOptions:
    """Read DeleteOptions from a decoded body, or from the query where there is no body; raises 400 and 422."""
    found = dict(body)
    if not found:
        for name in ("gracePeriodSeconds", "orphanDependents", "propagationPolicy"):
            if name in query and query[name][0] != "":
                found[name] = query[name][0]
        if "gracePeriodSeconds" in found:
            try:
                found["gracePeriodSeconds"] = int(found["gracePeriodSeconds"])
            except ValueError:
                text = found["gracePeriodSeconds"]
                raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
        if "orphanDependents" in found:
            found["orphanDependents"] = found["orphanDependents"].lower() not in ("false", "0")
    dry_run = query.get("dryRun") or found.get("dryRun") or []
    problems = []
    propagation, orphan = found.get("propagationPolicy"), found.get("orphanDependents")
    if propagation is not None and orphan is not None:
        problems.append(
            errors.invalid_value(
                "propagationPolicy", propagation, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    elif propagation is not None and propagation not in ("Foreground", "Background", "Orphan"):
        problems.append(errors.not_supported("propagationPolicy", propagation, ("Foreground", "Background", "Orphan")))
    if any(value != "All" for value in dry_run):
        problems.append(errors.not_supported("dryRun", dry_run, ("All",)))
    if problems:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", problems)
    grace = found.get("gracePeriodSeconds")
    if grace is not None and grace < 0:  # as upstream; the agent uses at least 1 s for all others
        grace = 1
    return DeleteOptions(grace, propagation, orphan, found.get("preconditions"), bool(dry_run))
