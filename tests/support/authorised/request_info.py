"""Upstream's RequestInfo, written from its rules and not from the server's code: parses method, path and query.

The rules are RequestInfoFactory.NewRequestInfo's (staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go, v1.36) and
those of the filter that makes an authorizer's attributes of its answer. Exceptions are in `READ_OTHERWISE`.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from tests.support.authorised.calls import Call
from tests.support.authorised.recording import Question

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_LABEL = r"!?[a-z]+|[a-z]+ ?(=|==|!=) ?[a-z]*|[a-z]+ (not)?in \([a-z,]*\)"
_LABELS = re.compile(rf"(({_LABEL})(,({_LABEL}))*)?")
"""Label selectors of the simple kind that requests have here: keys and values of letters (pkg/labels/selector.go)."""
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
READ_OTHERWISE = {
    "empty segments": "Upstream keeps the empty segments of a path, so that /namespaces//secrets is a list of all namespaces;"
    " here they are left out, and handlers and authorization read the same path.",
}


def question_of(call: Call) -> Question:
    """Return what a request's authorization is about."""
    parts = [part for part in call.path.split("/") if part]  # READ_OTHERWISE: empty segments
    grouped = parts[:1] == ["apis"]
    least = 4 if grouped else 3
    if parts[:1] not in (["api"], ["apis"]) or len(parts) < least:
        return Question(call.method.lower(), path=call.path)
    group = parts[1] if grouped else ""
    rest = parts[least - 1 :]
    verb, _by_path = _VERBS.get(call.method, ""), False
    if rest[0] in ("watch", "proxy"):
        if len(rest) < 2:
            return Question(call.method.lower(), path=call.path)
        verb, rest, _by_path = rest[0], rest[1:], True
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource, name = rest[0], rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        query = parse_qs(call.query, keep_blank_values=True)
        verb = "watch" if _true(query.get("watch", ["false"])[0]) else "list"
        readable = all(_NUMBER.fullmatch(query.get(key, ["0"])[0]) for key in ("limit", "timeoutSeconds"))
        readable = readable and _LABELS.fullmatch(query.get("labelSelector", [""])[0]) is not None
        name = _selected(query.get("fieldSelector", [""])[0]) if readable else ""
    if not name and verb == "delete":
        verb = "deletecollection"
    return Question(verb, group, resource, subresource, namespace, name)


def selectors_of(call: Call) -> tuple[str, str]:
    """Return the field and label selector that an authorizer gets: none on the old paths, which take them only in part."""
    question, by_path = question_of(call), "/watch/" in call.path
    if by_path or question.verb not in ("list", "watch", "deletecollection"):
        return "", ""
    query = parse_qs(call.query, keep_blank_values=True)
    return query.get("fieldSelector", [""])[0], query.get("labelSelector", [""])[0]


def _true(text: str) -> bool:
    return text.lower() not in ("false", "0")


def _selected(selector: str) -> str:
    """Return the name that a field selector demands, "" for one that cannot be read or is no path segment.

    Upstream sorts the terms, and of several names takes the first.
    """
    found = ""
    for term in sorted(_terms(selector)):
        parsed = _term(term)
        if parsed is None:
            return ""
        if parsed[0] == "metadata.name" and parsed[1] != "!=" and not found:
            found = parsed[2]
    return found if found not in (".", "..") and "/" not in found and "%" not in found else ""


def _terms(text: str) -> list[str]:
    terms, term, escaped = [], "", False
    for c in text:
        if c == "," and not escaped:
            terms.append(term)
            term = ""
        else:
            term += c
        escaped = c == "\\" and not escaped
    return [t for t in (*terms, term) if t]


def _term(text: str) -> tuple[str, str, str] | None:
    for at in range(len(text)):
        for operator in ("!=", "==", "="):
            if text.startswith(operator, at):
                value = _unescaped(text[at + len(operator) :])
                return None if value is None else (text[:at], operator, value)
    return None


def _unescaped(text: str) -> str | None:
    found, escaped = "", False
    for c in text:
        if escaped:
            if c not in "\\,=":
                return None
            found, escaped = found + c, False
        elif c == "\\":
            escaped = True
        elif c in ",=":
            return None
        else:
            found += c
    return None if escaped else found
