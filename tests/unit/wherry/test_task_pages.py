"""Parsing of pages of docs/tasks/ (tests/support/pages.py): every page can be parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import Failed, Step, parse, take

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs" / "tasks").glob("*.md"))


@pytest.mark.parametrize(
    ("shows", "printed", "agrees"),
    [
        ([], "anything", True),
        (["web created"], "web created", True),
        (["web created"], "web changed", False),
        (["NAME   READY"], "NAME     READY  ", True),
        (["web-... 1/1"], "web-7d9c   1/1", True),
        (["web-... 1/1"], "web-7d9c   0/1", False),
        (["...", "done"], "waiting\nwaiting\ndone", True),
        (["...", "done"], "done", True),
        (["...", "done"], "waiting", False),
        (["first", "..."], "first", True),
        (["first", "..."], "second\nfirst", False),
        (["a 1 ..."], "a 1", True),
        (["one"], "one\ntwo", False),
        (['pod "a" deleted from default namespace'], 'pod "a" deleted from other namespace', True),
        (['pod "a" deleted from default namespace'], 'pod "a" deleted', True),
        (["no cpu. ... because=Never..."], "no cpu. tried, because=Never.", True),
        (["no cpu. ... because=Never..."], "no memory. tried, because=Never.", False),
    ],
)
def test_what_is_printed_is_compared_with_what_a_page_shows(shows: list[str], printed: str, agrees: bool) -> None:
    assert Step("x", shows).agrees(printed) is agrees


def test_a_page_is_read_in_its_order() -> None:
    file, no_file = "```yaml a.yaml\nkind: Pod\n```\n", "```yaml\nkind: Service\n```\n"
    text = f"A file:\n{file}\n```console\n$ one \\\n    more\nshown\n$ two\n```\n{no_file}"
    assert list(parse(text)) == [("a.yaml", "kind: Pod\n"), Step("one more", ["shown"]), Step("two", [])]


class Machine:
    """A shell whose commands end and print as given, one after the other."""

    def __init__(self, *results: tuple[int, str]) -> None:
        self._results = list(results)

    def run(self, command: str) -> tuple[int, str]:
        return self._results.pop(0)


def test_answers_are_requested_until_they_are_the_pages_but_a_request_without_one_fails() -> None:
    step, get = Step("curl http://a", ["blue"]), Step("kubectl get pods", ["blue"])
    take(step, Machine((0, "green"), (0, "blue")))  # type: ignore[arg-type]
    take(get, Machine((1, "refused"), (0, "blue")))  # type: ignore[arg-type]
    with pytest.raises(Failed, match="ended with 7"):
        take(step, Machine((7, ""), (0, "blue")))  # type: ignore[arg-type]


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "README"], ids=lambda p: str(p.stem))
def test_every_page_has_something_to_do_and_is_listed(page: Path) -> None:
    assert sum(isinstance(step, Step) for step in parse(page.read_text())) > 3
    assert f"[{page.name}]({page.name})" in (page.parent / "README.md").read_text()
