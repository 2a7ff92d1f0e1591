"""Terminals in the page of `wherry ui`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import page_server, pod, tab, user_kubeconfig
from wherry.testing import Cluster, Exec, Output

MARKUP = "<img src=x onerror='window.hacked=1'>"


def shell(call: Exec) -> int:
    """Echo keys as a terminal's line discipline does, with colours, and run two commands."""
    call.stdout.write(b"\x1b]0;title\x07\x1b[1;32m$\x1b[0m ")
    line = b""
    while key := call.stdin.read(1):
        if key == b"\x7f":
            line = line[:-1]
            call.stdout.write(b"\x08\x1b[K")
        elif key == b"\r":
            if line == b"exit":
                return 7
            call.stdout.write(b"\r\n" + (MARKUP.encode() if line == b"evil" else line.upper()) + b"\r\n$ ")
            line = b""
        else:
            line += key
            call.stdout.write(key)
    return 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=1) as found:
        found.apply(pod("web"))
        found.wait("pod/web", "Ready")
        found.pods.on_exec("web", shell)
        yield found


def open_terminal(page: Tab, name: str = "web") -> None:
    page.wait_text("live", "#connection")
    page.open(page.evaluate("location.origin") + f"/?namespace=default&show=Pod/default/{name}")
    page.click("[role=tab]", "Terminal")
    page.wait_text("runs with your own rights, and may change things", "#panel")
    page.click("#panel button", "Start")


def test_a_command_runs_in_a_terminal_of_the_page(cluster: Cluster, browser: Chromium) -> None:
    with page_server(cluster.kubeconfig) as link, tab(browser, link) as page:
        open_terminal(page)
        page.wait_text("$", ".terminal")
        page.wait("document.activeElement.classList.contains('terminal')")
        for key in "helpo":
            page.key(key, key)
        page.wait_text("$ helpo", ".terminal")
        for _ in range(2):
            page.key("Backspace")
        page.key("l", "l")
        page.key("o", "o")
        page.key("Enter", "\r")
        page.wait_text("HELLO", ".terminal")
        assert "helpo" not in page.evaluate("document.querySelector('.terminal').innerText")
        page.key("Escape")
        assert not page.evaluate("document.querySelector('#drawer').hidden"), "keys go to the program"
        page.key("Backspace")
        page.evaluate("document.querySelector('[aria-label=\"Line to send\"]').focus()")
        page.type("evil")
        page.key("Enter", "\r")
        page.wait_text("onerror", ".terminal")
        assert page.evaluate("window.hacked === undefined && !document.querySelector('.terminal img')")
        page.type("exit")
        page.key("Enter", "\r")
        page.wait_text("exit code 7", "#panel [role=status]")


def test_much_output_is_shown_to_its_end(cluster: Cluster, browser: Chromium) -> None:
    cluster.apply(pod("loud"))
    cluster.wait("pod/loud", "Ready")
    cluster.pods.on_exec("loud", lambda call: Output(stdout=(b"y" * 78 + b"\r\n") * 15_000 + b"the end\r\n"))
    with page_server(cluster.kubeconfig) as link, tab(browser, link) as page:
        open_terminal(page, "loud")
        page.wait_text("the end", ".terminal", 40)
        page.wait_text("The command ended.", "#panel [role=status]")


def test_a_user_who_may_only_view_gets_the_reason(cluster: Cluster, browser: Chromium, tmp_path: Path) -> None:
    rbac = "rbac.authorization.k8s.io"
    cluster.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "jane"}],
        }
    )
    config = user_kubeconfig(cluster, "jane", (), tmp_path / "jane", "default")
    with page_server(config) as link, tab(browser, link) as page:
        open_terminal(page)
        page.wait_text("the API server refused it with status 403", "#panel [role=status]")


SCREENS = [
    ("a\r\nb", "a\nb", 1, 1),
    ("abc\x1b[2Dx", "axc", 0, 2),
    ("abc\r\x1b[K", "", 0, 0),
    ("1\r\n2\r\n3\x1b[2J\x1b[Hx", "x", 0, 1),
    ("abcdef\x1b[3G\x1b[2P", "abef", 0, 2),
    ("ab\x1b[1G\x1b[2@", "  ab", 0, 0),
    ("a\tb", "a       b", 0, 9),
    ("x" * 12, "x" * 10 + "\nxx", 1, 2),
    ("1\r\n2\r\n3\r\n4\x1b[H!", "1\n!\n3\n4", 0, 1),
    ("a\x1b[9999999999B\x1b[9999999999C", "a\n\n", 2, 9),
    ("a\x1b[?2004h\x1b]0;title\x1b\\\x1b(Bb\x1b[38;5;1mc", "abc", 0, 3),
    ("\x07\x00a", "a", 0, 1),
    ("\x1b[" + "1" * 3000, "[" + "1" * 9 + ("\n" + "1" * 10) * 299 + "\n1", 2, 1),
]


def test_control_sequences_move_and_erase(cluster: Cluster, browser: Chromium) -> None:
    with page_server(cluster.kubeconfig) as link, tab(browser, link) as page:
        page.wait_text("live", "#connection")
        texts = [each[0] for each in SCREENS]
        found = page.evaluate(
            f"""import('/static/screen.js').then(({{Screen}}) => {json.dumps(texts)}.flatMap((text) => {{
              const [whole, parts] = [new Screen(10, 3), new Screen(10, 3)];
              whole.write(text);
              for (const each of text) parts.write(each);
              return [whole, parts].map((s) => [s.lines.join("\\n").trimEnd(), s.row - s.top, s.column]);
            }}))"""
        )
        wanted = [[lines.rstrip(), row, column] for _, lines, row, column in SCREENS for _ in range(2)]
        assert found == wanted
        kept = page.evaluate(
            """import('/static/screen.js').then(({Screen}) => { const s = new Screen(80, 24);
            for (let n = 0; n < 5000; n++) s.write(`line ${n}\\r\\n`);
            return [s.lines.length <= 2200, s.lines[s.lines.length - 2]]; })"""
        )
        assert kept == [True, "line 4999"]
