"""Options of lists and watches: reads and checks them, and finds the narrowest folder of the store that holds all matches."""

from __future__ import annotations

import hashlib

import msgspec

from control.http.exchange import Request
from control.server import query_selectors
from control.storage.entry import Predicate
from control.storage.selector import Part, Required, Selector
from kube import errors, selectors
from kube.resources import Resource

MOST = 1 << 31
"""More objects than any list has: a limit beyond it is one that limits nothing."""
MANY = 16
"""Terms of a selector up to which a comparison takes a few microseconds."""
FEW = 8
"""Values of a label by which a selector is looked up."""
_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})


class ListOptions(msgspec.Struct):
    """A list's or a watch's options, checked."""

    labels: selectors.LabelSelector
    fields: selectors.FieldSelector
    revision: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    watch: bool = False
    timeout: int | None = None
    bookmarks: bool = False
    send_initial: bool | None = None
    key: bytes = b""
    """Digest of the text of the selectors, by which watches share evaluations; empty if the text is not the whole selection."""

    @property
    def costly(self) -> bool:
        """True if comparing one object with the selectors can take milliseconds."""
        return len(self.labels.requirements) > MANY or len(self.fields.terms) > MANY

    def predicate(self) -> Predicate | None:
        """Return what an entry must fulfil; None if the selectors take everything."""
        by_labels, by_fields = self.labels.matcher(), self.fields.matches
        if self.labels.empty and self.fields.empty:
            return None
        if self.fields.empty:
            return lambda entry: by_labels(entry.labels)
        if self.labels.empty:
            return lambda entry: by_fields(entry.fields)
        return lambda entry: by_labels(entry.labels) and by_fields(entry.fields)

    def selector(self) -> Selector | None:
        """Return what a watch selects; None if it takes everything."""
        predicate = self.predicate()
        if predicate is None:
            return None
        parts: tuple[Part, ...] = (
            ("fields",) if self.labels.empty else ("labels",) if self.fields.empty else ("labels", "fields")
        )
        return Selector(predicate, self.key or None, self._required(), parts, costly=self.costly)

    def _required(self) -> Required | None:
        """Return the values of a field or a label that all matches have, if there are few."""
        exact = [(field, value) for field, value, equal in self.fields.terms if equal]
        for field, value in exact:
            if field not in _ALWAYS:  # what a folder's objects have in common is the last choice
                return Required("fields", field, frozenset((value,)))
        for each in self.labels.requirements:
            if each.operator == "in" and len(each.values) <= FEW:
                return Required("labels", each.key, each.values)
        return Required("fields", exact[0][0], frozenset((exact[0][1],))) if exact else None

    def folder(self, resource: Resource, namespace: str) -> str:
        """Return the narrowest place in the store that holds all matches."""
        prefix = resource.storage_prefix
        if resource.namespaced:
            namespace = namespace or self.fields.exact("metadata.namespace") or ""
            if not namespace:
                return prefix
            prefix = f"{prefix}{namespace}/"
        name = self.fields.exact("metadata.name")
        if name and "/" not in name:
            return prefix + name
        return prefix


async def read_options(request: Request, known: frozenset[str] | None) -> ListOptions:
    """Read list options from a query; raises 400 for selectors and numbers that cannot be read.

    `known` names the selectable fields of the kind besides name and namespace; None: any.
    """
    try:
        labels, fields = await query_selectors.parsed(request, request.user.name)
    except selectors.SelectorError as error:
        raise errors.bad_request(str(error)) from error
    if known is not None:
        for term, _, _ in fields.terms:
            if term not in known and term not in _ALWAYS:
                raise errors.bad_request(f"field label not supported: {term}")
    texts = request.option("labelSelector"), request.option("fieldSelector")
    key = hashlib.blake2b("\0".join(texts).encode(), digest_size=16).digest() if any(texts) else b""
    return ListOptions(
        labels,
        fields,
        request.option("resourceVersion"),
        request.option("resourceVersionMatch"),
        min(max(request.number("limit") or 0, 0), MOST),  # below zero: all, as upstream
        request.option("continue"),
        bool(request.flag("watch")) or request.info.deprecated_watch,
        request.number("timeoutSeconds"),
        bool(request.flag("allowWatchBookmarks")),
        request.flag("sendInitialEvents"),
        key,
    )


def check(options: ListOptions) -> None:
    """Refuse combinations of options that have no meaning (apimachinery's ValidateListOptions)."""
    problems = []
    if options.watch:
        if options.send_initial is not None and options.match != "NotOlderThan":
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                )
            )
        elif options.send_initial is None and options.match:
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        if options.match and options.match != "NotOlderThan":
            problems.append(errors.not_supported("resourceVersionMatch", options.match, ("NotOlderThan",)))
        if options.match and options.token:
            problems.append(
                errors.forbidden_field(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                )
            )
    else:
        if options.send_initial is not None:
            problems.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if options.match:
            if not options.revision:
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                    )
                )
            if options.token:
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                    )
                )
            if options.match not in ("Exact", "NotOlderThan"):
                problems.append(
                    errors.not_supported("resourceVersionMatch", options.match, ("Exact", "NotOlderThan", ""))
                )
            if options.match == "Exact" and options.revision == "0":
                problems.append(
                    errors.forbidden_field(
                        "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                    )
                )
    if problems:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)
