"""Inputs from containers, pods and nodes: metrics, images, logs, variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.images.names import with_default_tag
from agent.podspec.environment import expand, names_in
from agent.server import log_files, log_query, log_request
from control.resource_metrics import sample
from tests.support.cost_cases.inputs import HEAD, NOW, OBJECT, cases, each, fill

METRICS: dict[str, Callable[[int], str]] = {
    "lines": fill('container_cpu_usage_seconds_total{namespace="n",pod="p",container="c"} 1\n'),
    "a long label": fill("a", "node_x{", "} 1"),
    "a label without an end": fill("a", 'node_x{a="', "} 1"),
    "quotes": fill('a="', "node_x{", "} 1"),
    "escapes": fill("\\\\", 'node_x{a="', '"} 1'),
    "digits": fill("9", "node_x ", ""),
    "digits of a time": fill("9", "node_x 1 "),
    "braces": fill("}", "node_x{"),
}
IMAGES: dict[str, Callable[[int], str]] = {
    "letters": fill("a", "", "!"),
    "parts": fill("a/", "", "!"),
    "labels": fill("a.", "", "!"),
    "dashes": fill("a-", "", "!"),
    "many dashes": fill("-", "a", "!"),
    "underscores": fill("a_", "", "!"),
    "double underscores": fill("a__", "", "!"),
    "colons": fill("a:1"),
    "a digest": fill("a", "a@sha256:", "!"),
    "the name of a digest": fill("+a", "a@a", "!"),
    "capitals": fill("A"),
    "an address": fill("a:", "[", "!"),
}
LOG_LINES: dict[str, Callable[[int], bytes]] = {
    "text": fill(b"a", "2026-01-01T00:00:00.1Z stdout F "),
    "spaces": fill(b" "),
    "a long time": fill(b"1", "2026-01-01T00:00:00.", "Z stdout F x"),
    "a long whole time": fill(b"1", "", " stdout F x"),
    "newlines": fill(b"\n", "2026-01-01T00:00:00.1Z stdout F "),
    "tags": fill(b"F:", "2026-01-01T00:00:00.1Z stdout "),
}


def log_line(raw: bytes) -> object:
    options = log_files.LogOptions(timestamps=True, since=1, limit_bytes=1 << 30)
    return log_files.LogWriter(options).write(raw)


ENVIRONMENT: dict[str, Callable[[int], str]] = {
    "references": fill("$(A)"),
    "dollars": fill("$"),
    "open references": fill("$("),
    "an open reference": fill("a", "$("),
    "parentheses": fill("$()"),
}


def variables(text: str) -> object:
    return expand(text, {"A": "b"}), names_in(text)


def log_option(name: str) -> Callable[[str], object]:
    return lambda text: log_request.options({name: text}, NOW)


PATTERNS: dict[str, Callable[[int], str]] = {
    "letters": fill("a"),
    "groups": lambda size: "(" * (size // 2) + ")" * (size // 2),
    "open groups": fill("("),
    "closed groups": fill(")"),
    "repeated groups": lambda size: "(" * (size // 3) + "a" + ")+" * (size // 3),
    "digits of a repetition": fill("9", "a{", "}"),
    "repetitions": fill("{2}", "a"),
    "alternatives": fill("a|"),
    "sets": fill("[a-z]"),
    "sets of all characters in any case": fill("[\0-\U0010ffff]", "(?i)"),
    "looks behind": fill("(?<=", "", ")"),
    "names": each("(?P<a%d>)"),
    "back references": fill("\\1", "(a)"),
    "comments": fill("#", "(?x)"),
    "escapes": fill("\\"),
    "NULs": fill("\0"),
}


def system_log_query(name: str, *others: tuple[str, str]) -> Callable[[str], object]:
    return lambda text: log_query.LogQuery.read([*others, (name, text)], Path("/nonexistent"))


QUERIED = (log_query.QueryError,)
LOG_REFUSED = (log_request.LogRequestError,)
CASES = [
    *cases("metrics of a node", METRICS, lambda text: sample.parse(text, 0.0), largest=OBJECT),
    *cases("image", IMAGES, with_default_tag, largest=OBJECT),
    *cases("log line", LOG_LINES, log_line, largest=OBJECT),
    *cases("log query", {"digits": fill("9")}, log_option("tailLines"), largest=HEAD, refused=LOG_REFUSED),
    *cases("log query since", {"digits": fill("9")}, log_option("sinceSeconds"), largest=HEAD, refused=LOG_REFUSED),
    *cases(
        "pattern of a log query",
        PATTERNS,
        system_log_query("pattern", ("query", "a")),
        largest=log_query.LONGEST_PATTERN,
        refused=QUERIED,
        memory=2500,  # of the nested calls of a thousand groups
    ),
    *cases(
        "long pattern of a log query",
        PATTERNS,
        system_log_query("pattern", ("query", "a")),
        largest=HEAD,
        refused=QUERIED,
    ),
    *cases(
        "services of a log query",
        {name: IMAGES[name] for name in ("letters", "parts", "dashes")}
        | {"backslashes": fill("\\a"), "dots": fill("../")},
        system_log_query("query"),
        largest=HEAD,
        refused=QUERIED,
    ),
    *(
        case
        for name in ("sinceTime", "untilTime", "tailLines", "boot")
        for case in cases(
            f"{name} of a log query",
            {"digits": fill("9"), "a fraction": fill("1", "2026-01-01T00:00:00.", "Z"), "spaces": fill(" ", "1")},
            system_log_query(name, ("query", "a")),
            largest=HEAD,
            refused=QUERIED,
        )
    ),
    *cases("variables", ENVIRONMENT, variables, largest=OBJECT),
]
