"""The one-time link and its session."""

from __future__ import annotations

from pathlib import Path

from wherry.ui import browser, files
from wherry.ui.session import Session


def test_a_link_is_exchanged_once() -> None:
    session = Session()
    assert not session.exchange("") and not session.exchange(session.link + "x") and not session.used
    assert session.exchange(session.link)
    first = session.cookie, session.token
    assert not session.exchange(session.link)
    assert (session.cookie, session.token) == first


def test_a_request_needs_both_secrets() -> None:
    session = Session()
    assert not session.valid("", "")
    session.exchange(session.link)
    assert session.valid(session.cookie, session.token)
    for wrong in [
        ("", session.token),
        (session.cookie, ""),
        (session.token, session.cookie),
        ("é\udc80", session.token),
    ]:
        assert not session.valid(*wrong)


def test_secrets_differ() -> None:
    assert len({each for session in (Session(), Session()) for each in (session.link,) if len(each) > 40}) == 2


def test_the_file_that_opens_the_link_is_only_for_the_user_and_removed() -> None:
    with browser.link_file("http://127.0.0.1:1/#a&b") as path:
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert 'href="http://127.0.0.1:1/#a&amp;b"' in path.read_text()
    assert not path.parent.exists()


def test_a_browser_is_opened_where_it_has_a_window() -> None:
    assert browser.available({"DISPLAY": ":0"}, "linux") and browser.available({"WAYLAND_DISPLAY": "w"}, "linux")
    assert browser.available({}, "darwin")
    assert not browser.available({"TERM": "xterm", "DISPLAY": ""}, "linux"), (
        "one for terminals would take the command's"
    )


def test_the_page_is_small_and_has_no_code_in_its_markup() -> None:
    loaded = files.load()
    assert {"index.html", "main.js", "style.css", "icon.svg"} <= set(loaded)
    assert sum(len(content) for content, _ in loaded.values()) < 160_000
    markup = loaded["index.html"][0].decode()
    assert "style=" not in markup and " on" not in markup.replace(" one", "") and markup.count("<script") == 1
    assert {path.name for path in Path(files.FOLDER).iterdir()} == set(loaded), "a file of the page is not served"


def test_lines_of_scripts_have_a_limited_length() -> None:
    """The linter has no rule for it."""
    for name, (content, _) in files.load().items():
        if name.endswith(".js"):
            assert max(map(len, content.decode().splitlines())) <= 140, name


def test_no_script_makes_markup_of_strings() -> None:
    ways = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "new Function",
        "srcdoc",
    )
    for name, (content, _) in files.load().items():
        assert not [way for way in ways if way in content.decode()], name
