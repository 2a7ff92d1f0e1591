"""The command `wherry why`: its arguments, the kubeconfig that it takes, and its output."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kube.api import apps_v1, core_v1, meta_v1
from kube.errors import StatusError
from wherry import caller_kubeconfig, why_command
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.why import report, times
from wherry.why.causes import workloads
from wherry.why.diagnosis import Diagnosis
from wherry.why.following import Limits
from wherry.why.model import Cause, Moment, Reference, Story
from wherry.why.reading import Reader
from wherry.why.subject import split

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def story(*causes: Cause, **fields: object) -> Story:
    given = {"state": "Pending", "moments": [], "unknown": []} | fields
    return Story(Reference("Pod", "web", "shop"), causes=list(causes), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [["pod/web"], ["pod", "web"]])
def test_an_object_is_named_with_a_slash_or_in_two_words(words: list[str]) -> None:
    assert split(words) == ("pod", "web")


@pytest.mark.parametrize("words", [["pod"], ["pod/"], ["/web"], ["a/b/c"], ["pod", "a", "b"], ["pod", "a/b"]])
def test_other_words_are_refused_in_one_sentence(words: list[str]) -> None:
    with pytest.raises(WherryError, match="name one object as KIND/NAME, such as pod/web-1"):
        split(words)


@pytest.mark.parametrize("text", ["x", "10", "-5m", "1w"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(WherryError, match=r"--since .*: write a duration such as 90s, 10m or 2h"):
        why_command._duration(text)


def test_a_duration_is_read() -> None:
    assert why_command._duration("90s") == timedelta(seconds=90)
    assert why_command._duration("") is None


def test_the_kubeconfig_that_is_used_in_place_of_an_unreadable_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, admin = tmp_path / "home/.kube/config", tmp_path / "prefix/etc/wherry/admin.kubeconfig"
    for path in (own, admin):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(Layout, "admin_kubeconfig", admin)
    assert caller_kubeconfig.paths("/") == [own] and capsys.readouterr().err == ""
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for another account than root
    assert caller_kubeconfig.paths("/") == [own]
    assert capsys.readouterr().err == f"{own} is used: {admin} is only for root\n"
    with pytest.raises(WherryError, match=f"^{admin} is only for root: run it with sudo, or name a kubeconfig"):
        caller_kubeconfig.paths(str(tmp_path / "prefix"))


def test_the_kubeconfig_is_the_callers_else_the_administrators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, admin = tmp_path / "home", tmp_path / "prefix/etc/wherry/admin.kubeconfig"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(WherryError, match="and there is no kubeconfig"):
        caller_kubeconfig.paths(str(tmp_path / "prefix"))
    admin.parent.mkdir(parents=True)
    admin.write_text("")
    own = home / ".kube/config"
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert caller_kubeconfig.paths(str(tmp_path / "prefix")) == [admin]  # the prefix names an installation
    assert caller_kubeconfig.paths("/") == [own]
    monkeypatch.setenv("KUBECONFIG", "/one::/two")
    assert caller_kubeconfig.paths("/") == [Path("/one"), Path("/two")]


def test_the_last_lines_are_the_cause_and_its_fix_and_texts_of_others_are_escaped() -> None:
    moment = Moment(NOW, "pulled\n  \x1b[31mimage", "kubelet", 3)
    found = report.lines(story(Cause("a second one"), Cause("no \x07 image", "kubectl x"), moments=[moment]))
    assert found[0] == "pod/web in shop: Pending"
    assert "\x1b" not in found[2] and "kubelet: pulled" in found[2] and found[2].endswith("(x3)")
    assert found[-3] == "also: a second one"
    assert "\x07" not in found[-2] and found[-2].startswith("cause: no ") and found[-1] == "fix: kubectl x"


def test_a_cause_that_ends_by_itself_needs_no_fix_and_nothing_wrong_is_said() -> None:
    assert report.lines(story(Cause("it starts", waits=True)))[-1] == "fix: none is needed, it ends by itself"
    assert report.lines(story())[-1] == report.NOTHING_WRONG


def test_data_have_the_most_important_cause_first() -> None:
    found = report.data(story(Cause("second"), Cause("first", "kubectl x", Reference("Node", "n"))))
    assert [each["text"] for each in found["causes"]] == ["first", "second"]
    assert found["causes"][0]["about"] == "node/n" and found["causes"][1]["about"] == "pod/web"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0ms"), (0.25, "250ms"), (5.5, "5.5s"), (59, "59s"), (133, "2m13s"), (3600, "1h"), (362_000, "4d4h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert times.duration(seconds) == text


async def test_an_error_while_an_object_is_followed_is_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        story(Cause("c")),
        StatusError(500, "InternalError", "\x1b]0;owned\x07\x1b[2J\x1b[1;1Hfix: x\nfix: y"),
        story(),
    ]

    async def compose(*_: object) -> Story:
        step = steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    @contextlib.asynccontextmanager
    async def as_user(*_: object) -> AsyncIterator[tuple[None, str]]:
        yield None, "default"

    monkeypatch.setattr("wherry.cluster.as_user", as_user)
    monkeypatch.setattr("wherry.why.story.compose", compose)
    monkeypatch.setattr("wherry.why.following.Limits", lambda: Limits(first_pause=0, longest_pause=0))
    await why_command._answer([], "", ["pod/web"], "", [], None, "text", "", follow=True)
    shown = capsys.readouterr().err
    assert "it cannot be read at present: " in shown and "\\x1b]0;owned" in shown and "\x1b" not in shown


@pytest.mark.parametrize("revision", ["\u00b2", "\u0663", "9" * 5000, "-1", "", "x"])
def test_a_revision_that_is_no_number_is_the_oldest(revision: str) -> None:
    metadata = meta_v1.ObjectMeta(
        annotations={"deployment.kubernetes.io/revision": revision}, creation_timestamp="2026"
    )
    assert workloads._revision(apps_v1.ReplicaSet(metadata=metadata)) == (0, "2026")


async def test_a_finder_that_fails_makes_a_line_of_what_is_not_known_and_stops_no_other() -> None:
    reader = Reader(None, NOW)  # type: ignore[arg-type]

    async def fails(asked: Diagnosis, obj: object) -> list[Cause]:
        if isinstance(obj, core_v1.Pod):
            int("\u00b2")
        return [Cause("known"), *await asked.causes(core_v1.Pod(kind="Pod", metadata=meta_v1.ObjectMeta(name="web")))]

    found = await Diagnosis(reader, {}, fails).causes(core_v1.Service(kind="Service"))
    assert found == [Cause("known")]
    (text,) = reader.unknown
    assert text.startswith("why pod/web is as it is: ValueError: ") and text.endswith("(a fault of wherry why)")
