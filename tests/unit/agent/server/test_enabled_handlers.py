"""Handlers and metrics of the kubelet port; called in the process, without a socket."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any, cast

import pytest

from agent import configure
from agent.config import EnabledHandlers
from agent.flags import Flags
from agent.kubelet_configuration import KubeletConfiguration
from agent.metrics.kubelet_metrics import KubeletMetrics, size_class
from agent.server import log_query
from agent.server.app import ServerDependencies, build
from agent.server.auth_filter import AuthFilter
from agent.server.request_metrics import bucket
from kube.delegated_authentication import User
from kube.process import Result
from tests.support.clock import FakeClock


class Anybody:
    """Everybody is let in."""

    async def authenticate(self, *given: Any) -> Any:
        return User("somebody")

    async def forbidden(self, *given: Any) -> str:
        return ""


def port(
    folder: Path = Path("/none"), handlers: EnabledHandlers | None = None, well: str = "", **more: Any
) -> tuple[AuthFilter, KubeletMetrics]:
    metrics = KubeletMetrics()
    parts = ServerDependencies(
        pods=cast(Any, None),
        runtime=cast(Any, None),
        clock=FakeClock(),
        pod_logs_dir=Path("/none"),
        health=lambda: well,
        configuration=dict,
        summary=cast(Any, None),
        remove_volume=cast(Any, None),
        metrics_texts={},
        system_logs_dir=folder,
        metrics=metrics,
        **more,
    )
    return build(parts, cast(Any, Anybody()), cast(Any, Anybody()), handlers), metrics


async def ask(
    guard: AuthFilter, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, str, dict[str, str]]:
    path, _, query = path.partition("?")
    sent: list[MutableMapping[str, Any]] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 10250),
        "scheme": "https",
    }

    reported = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal reported
        if reported:
            await asyncio.Event().wait()  # the client stays
        reported = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(message.get("body", b"") for message in sent[1:]).decode(errors="replace")
    return sent[0]["status"], text, found


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "log"
    (folder / "pods" / "web").mkdir(parents=True)
    (folder / "syslog").write_text("one\ntwo\n")
    (folder / "pods" / "web" / "0.log").write_text("of a pod")
    (folder / "web.log").symlink_to("pods/web/0.log")
    (folder / os.fsdecode(b"\xff.log")).write_text("of a name that is no UTF-8")
    (tmp_path / "secret").write_text("nobody's business")
    (folder / "out.log").symlink_to("../secret")
    (folder / "rooted.log").symlink_to("/etc/hostname")
    (folder / "outside").symlink_to(tmp_path)
    yield folder


async def test_the_machines_logs_are_files_to_look_through(logs: Path) -> None:
    guard, _ = port(logs)
    status, text, headers = await ask(guard, "/logs/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert '<a href="%FF.log">\ufffd.log</a>\n' in text
    assert '<a href="pods/">pods/</a>\n' in text and '<a href="syslog">syslog</a>\n' in text
    assert (await ask(guard, "/logs/syslog"))[:2] == (200, "one\ntwo\n")
    assert (await ask(guard, "/logs/web.log"))[:2] == (200, "of a pod")
    assert (await ask(guard, "/logs/pods/web/0.log"))[:2] == (200, "of a pod")
    status, text, headers = await ask(guard, "/logs/syslog", range="bytes=4-6")
    assert (status, text, headers["content-range"]) == (206, "two", "bytes 4-6/8")
    assert (await ask(guard, "/logs/syslog", range="bytes=8-"))[0] == 416
    assert (await ask(guard, "/logs/syslog", range="bytes=-4"))[:2] == (206, "two\n")
    modified = (await ask(guard, "/logs/syslog"))[2]["last-modified"]
    assert (await ask(guard, "/logs/syslog", if_modified_since=modified))[0] == 304
    for path, place in (("/logs", "logs/"), ("/logs/pods", "pods/"), ("/logs/syslog/", "../syslog")):
        status, _, headers = await ask(guard, path)
        assert (status, headers["location"]) == (301, place)
    assert (await ask(guard, "/logs/none"))[0] == 404
    assert (await ask(guard, "/logs/syslog", "POST"))[0] == 405


@pytest.mark.parametrize(
    "path", ["out.log", "rooted.log", "outside/secret", "../secret", "..%2fsecret", "pods/../../secret"]
)
async def test_no_link_and_no_path_leads_out_of_the_logs(logs: Path, path: str) -> None:
    guard, _ = port(logs, EnabledHandlers(system_log_queries=True))
    status, text, _ = await ask(guard, f"/logs/{path}")
    assert status == (400 if "../" in path else 404) and "business" not in text
    status, text, _ = await ask(guard, f"/logs/?query=/{path}")
    assert status == 400 and "business" not in text


async def test_patterns_are_compiled_outside_the_event_loop(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, bool]] = []
    known = re.compile

    def recording(pattern: str, *flags: Any) -> Any:
        compiled.append((pattern, threading.current_thread() is threading.main_thread()))
        return known(pattern, *flags)

    guard, _ = port(logs, EnabledHandlers(system_log_queries=True))
    monkeypatch.setattr(re, "compile", recording)
    status, text, _ = await ask(guard, "/logs/?query=none&pattern=wrong(")
    assert status == 400 and "error parsing regexp" in text
    assert ("wrong(", False) in compiled and ("wrong(", True) not in compiled
    status, text, _ = await ask(guard, f"/logs/?query=none&pattern={'x' * 1001}")
    assert status == 400 and "expression too large" in text


async def test_a_query_finds_the_file_of_a_service(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[list[str]] = []

    async def units(argv: list[str], **options: Any) -> Result:
        return Result(0, "kubelet.service\nother.service\n", "")

    async def journal(argv: list[str], **options: Any) -> AsyncIterator[bytes]:
        requested.append(argv)
        for piece in (b"of the ", b"journal\n"):
            yield piece

    monkeypatch.setattr(log_query, "run", units)
    monkeypatch.setattr(log_query, "pieces", journal)
    (logs / "proxy").mkdir()
    (logs / "proxy" / "proxy.log").write_text("of the proxy")
    guard, _ = port(logs, EnabledHandlers(system_log_queries=True))
    assert (await ask(guard, "/logs/?query=proxy"))[:2] == (200, "of the proxy")
    assert (await ask(guard, "/logs/?query=syslog&query=proxy"))[1] == "one\ntwo\nof the proxy"
    assert (await ask(guard, "/logs/?query=/pods/web/0.log"))[:2] == (200, "of a pod")
    assert (await ask(guard, "/logs/?query=none"))[:2] == (200, "\nlog not found for none\n")
    output = "\noptions present and query resolved to log files for [proxy]\ntry without specifying options\n"
    assert (await ask(guard, "/logs/?query=proxy&tailLines=2"))[1] == output
    wanted = "query=kubelet&tailLines=3&boot=-1&pattern=E.*&sinceTime=2026-01-02T03:04:05%2B01:00"
    assert (await ask(guard, f"/logs/?{wanted}"))[1] == "of the journal\n"
    assert requested[-1] == [
        *("journalctl", "--utc", "--no-pager", "--output=short-precise", "--since=2026-01-02 02:04:05"),
        *("--pager-end", "--lines=3", "--unit=kubelet", "--grep=E.*", "--boot", "-1"),
    ]
    guard, _ = port(logs)
    assert (await ask(guard, "/logs/?query=proxy"))[1].startswith("<!doctype html>")  # switched off: passed over


async def test_patterns_of_nested_groups_are_refused_at_any_depth(logs: Path) -> None:
    guard, _ = port(logs, EnabledHandlers(system_log_queries=True))
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1000)  # as it is in a process that decodes no JSON
        status, text, _ = await ask(guard, f"/logs/?query=none&pattern={'(' * 499}{')' * 499}")
    finally:
        sys.setrecursionlimit(limit)
    assert status == 400 and "error parsing regexp: expression nests too deeply" in text


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("query=", 'query: Invalid value: [""]: query cannot be empty'),
        ("tailLines=1", "query: Required value: cannot be empty with options"),
        ("query=a;b", 'query: Invalid value: "a;b": input contains unsupported characters'),
        ("query=a&query=b&query=c&query=d&query=e", "query: Too many: 5: must have at most 4 items"),
        ("query=/syslog&query=a", "cannot specify a file and service"),
        ("query=/syslog&boot=0", "cannot specify file with options"),
        ("query=a&tailLines=100001", "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive"),
        ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1"),
        ("query=a&sinceTime=now", 'sinceTime: Invalid value: "now": invalid time format'),
        *(
            (f"query=a&{name}={time}".replace("+", "%2B"), f'{name}: Invalid value: "{time}": invalid time format')
            for name in ("sinceTime", "untilTime")
            for time in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
        ),
        (
            "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
            'untilTime: Invalid value: "2026-01-01T00:00:00Z": must be after `sinceTime`',
        ),
        ("query=a&pattern=(", 'pattern: Invalid value: "("'),
        ("query=a&pattern=a{99999999999999999999}", "error parsing regexp: the repetition number is too large"),
        ("query=a&pattern=a%00b", "error parsing regexp: a NUL"),
        ("query=a&pattern=" + "a" * 1001, f'pattern: Invalid value: "{"a" * 40}..."'),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(logs: Path, query: str, why: str) -> None:
    guard, _ = port(logs, EnabledHandlers(system_log_queries=True))
    status, text, _ = await ask(guard, f"/logs/?{query}")
    assert status == 400 and why in text


DISABLED = "Debug endpoints are disabled.\n"


@pytest.mark.parametrize(
    ("handlers", "shut", "open"),
    [
        (
            EnabledHandlers(debugging=False),
            {
                **dict.fromkeys(
                    ("/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c"), DISABLED
                ),
                **dict.fromkeys(("/runningpods/", "/debug/pprof/heap", "/logs/syslog"), DISABLED),
            },
            ["/healthz"],
        ),
        (
            EnabledHandlers(system_logs=False),
            {"/logs/syslog": "logs endpoint is disabled.\n"},
            ["/configz", "/healthz"],
        ),
        (EnabledHandlers(profiling=False), {"/debug/pprof/": "profiling endpoint is disabled.\n"}, ["/logs/"]),
        (
            EnabledHandlers(flags=False),
            {"/debug/flags/v": "flags endpoint is disabled.\n"},
            ["/logs/", "/statusz", "/flagz"],
        ),
    ],
)
async def test_disabled_handlers_respond_with_an_error(
    logs: Path, handlers: EnabledHandlers, shut: dict[str, str], open: list[str]
) -> None:
    guard, _ = port(logs, handlers)
    for path, why in shut.items():
        assert (await ask(guard, path))[:2] == (405, why), path
        assert (await ask(guard, path, "POST"))[:2] == (405, why), path
    for path in open:
        assert (await ask(guard, path))[0] == 200, path
    if not handlers.debugging:
        for path in ("/configz", "/statusz", "/flagz", "/checkpoint/a/b/c"):
            assert (await ask(guard, path))[0] == 404, path


@pytest.mark.parametrize(
    "handlers",
    [None, configure.from_flags(Flags()).handlers, configure.build(KubeletConfiguration(), Flags()).handlers],
)
async def test_the_node_s_system_logs_are_served_by_default(logs: Path, handlers: EnabledHandlers | None) -> None:
    """Upstream: enableSystemLogHandler is true, enableSystemLogQuery false."""
    guard, _ = port(logs, handlers)
    assert (await ask(guard, "/logs/"))[0] == 200
    assert (await ask(guard, "/logs/syslog"))[:2] == (200, "one\ntwo\n")


@pytest.mark.parametrize("day", ["99999999999999999999 Jan 2020 00:00:00 GMT", "01 Jan 2020 00:00:00 +99999999999999"])
async def test_a_log_is_sent_whatever_date_the_client_has_it_of(logs: Path, day: str) -> None:
    guard, _ = port(logs)
    open_files = len(os.listdir("/proc/self/fd"))
    assert (await ask(guard, "/logs/syslog", if_modified_since=f"Mon, {day}"))[0] == 200
    assert len(os.listdir("/proc/self/fd")) == open_files


async def test_health_is_reported_by_check() -> None:
    guard, _ = port()
    assert (await ask(guard, "/healthz"))[:2] == (200, "ok")
    assert (await ask(guard, "/healthz/syncloop"))[:2] == (200, "ok")
    verbose = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"
    assert (await ask(guard, "/healthz?verbose"))[1] == verbose
    assert (await ask(guard, "/healthz/none"))[0] == 404
    guard, _ = port(well="stuck")
    failed = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
    assert (await ask(guard, "/healthz"))[:2] == (500, failed)
    assert (await ask(guard, "/healthz?exclude=syncloop"))[:2] == (200, "ok")
    lines = (await ask(guard, "/metrics/slis"))[1].splitlines()
    assert 'kubernetes_healthcheck{name="syncloop",type="healthz"} 0' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 3' in lines


async def test_requests_are_counted_without_anybody_adding_labels(logs: Path) -> None:
    guard, metrics = port(logs)
    await ask(guard, "/logs/syslog")
    await ask(guard, "/made/up")
    await ask(guard, "/healthz", "BREW")
    assert metrics.requests.value("GET", "logs", "readwrite", "false") == 1
    assert metrics.requests.value("GET", "other", "readwrite", "false") == 1
    assert metrics.requests.value("other", "healthz", "readwrite", "false") == 1
    assert metrics.inflight.value("GET", "logs", "readwrite", "false") == 0
    assert metrics.request_seconds.count("GET", "logs", "readwrite", "false") == 1
    assert [bucket(p) for p in ("/metrics/resource", "/metrics/made/up", "/portForward/a/b")] == [
        "metrics/resource",
        "other",
        "portForward",
    ]


async def test_status_pages_show_version_and_flags() -> None:
    guard, _ = port(flags={"root-dir": "/var/lib/kubelet", "config": "/etc/k.yaml"})
    status, text, headers = await ask(guard, "/flagz")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    assert text.startswith("\nkubelet flags\n") and "\nconfig=/etc/k.yaml\nroot-dir=/var/lib/kubelet\n" in text
    status, text, _ = await ask(guard, "/statusz")
    assert "Binary version: 1.36.2\n" in text and "/containerLogs" in text
    assert (await ask(guard, "/statusz", accept="application/json"))[0] == 406


async def test_verbosity_is_a_number() -> None:
    guard, _ = port()
    for text in ("x", "", "\u00b2", "\u0663"):
        assert (await ask(guard, "/debug/flags/v", "PUT", text.encode()))[0] == 400
    output = "successfully set klog.logging.verbosity to 2\n"
    assert (await ask(guard, "/debug/flags/v", "PUT", b"2"))[:2] == (200, output)


def test_images_are_counted_by_upstreams_classes_of_size() -> None:
    assert [size_class(size) for size in (0, 10 << 20, (1 << 30) - 1, 200 << 30)] == [
        "0-10MB",
        "10MB-100MB",
        "500MB-1GB",
        "GT100GB",
    ]
