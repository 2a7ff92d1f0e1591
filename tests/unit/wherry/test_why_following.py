"""`wherry why --follow`: shows what is new, and ends when nothing is wrong, when the object is gone, or at its limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from kube.errors import StatusError
from wherry.errors import WherryError
from wherry.why import report
from wherry.why.following import Limits, follow
from wherry.why.model import Cause, Moment, Reference, Story
from wherry.why.story import NoSuchObject

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = Limits(first_pause=0, longest_pause=0, reads=6, failures=3)
UNREACHABLE = StatusError(503, "ServiceUnavailable", "the server does not answer")


def story(*causes: str, moments: int = 0) -> Story:
    happened = [Moment(NOW + timedelta(seconds=number), f"step {number}", "kubelet") for number in range(moments)]
    return Story(
        Reference("Pod", "web", "shop"), "Pending", happened, [Cause(text, "kubectl x") for text in causes], []
    )


class Followed:
    """Stories that are shown, of those that are read one after the other; the last one is read again and again."""

    def __init__(self, *steps: Story | Exception) -> None:
        self._steps, self.reads = list(steps), 0
        self.shown: list[Story] = []
        self.notes: list[str] = []

    async def read(self) -> Story:
        self.reads += 1
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    async def run(self) -> Sequence[Story]:
        await follow(self.read, lambda found, _: self.shown.append(found), self.notes.append, LIMITS)
        return self.shown


async def test_only_new_moments_and_a_changed_cause_are_shown_until_nothing_is_wrong() -> None:
    followed = Followed(
        story("no node (1m2s ago)", moments=1),
        story("no node (1m4s ago)", moments=1),
        story("no node (2m ago)", moments=2),
        story("no image", moments=2),
        story(moments=3),
        story("never read"),
    )
    first, second, third, last = await followed.run()
    assert len(first.moments) == 1 and first.causes[0].text == "no node (1m2s ago)"
    assert [each.text for each in second.moments] == ["step 1"] and not second.causes
    assert not third.moments and third.causes[0].text == "no image"
    assert [each.text for each in last.moments] == ["step 2"] and not last.causes
    assert followed.reads == 5


async def test_an_object_that_is_right_is_read_once() -> None:
    followed = Followed(story())
    assert len(await followed.run()) == followed.reads == 1


async def test_the_number_of_reads_is_limited() -> None:
    followed = Followed(story("no node"))
    with pytest.raises(WherryError, match="read 6 times"):
        await followed.run()
    assert followed.reads == LIMITS.reads and len(followed.shown) == 1


async def test_an_object_that_is_deleted_meanwhile_ends_it_and_one_that_never_was_is_an_error() -> None:
    followed = Followed(story("it is being deleted"), NoSuchObject("there is no pod web"))
    await followed.run()
    assert followed.notes == ["it does not exist any more"]
    with pytest.raises(NoSuchObject):
        await Followed(NoSuchObject("there is no pod web")).run()


async def test_a_server_that_restarts_is_waited_for_and_one_that_stays_away_is_an_error() -> None:
    followed = Followed(story("no node"), UNREACHABLE, UNREACHABLE, story())
    await followed.run()
    assert followed.notes == ["it cannot be read at present: the server does not answer"]
    away = Followed(story("no node"), UNREACHABLE)
    with pytest.raises(StatusError):
        await away.run()
    assert away.reads == 1 + LIMITS.failures


def test_later_lines_have_moments_and_the_causes_only_if_they_changed() -> None:
    unchanged = report.later_lines(story(moments=1), ended=False)
    assert len(unchanged) == 1 and "step 0" in unchanged[0]
    assert report.later_lines(story("no node"), ended=False) == ["cause: no node", "fix: kubectl x"]
    assert report.later_lines(story(), ended=True) == [report.NOTHING_WRONG]


async def test_the_pause_doubles_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("wherry.why.following.asyncio.sleep", sleep)
    steps = [story("no node"), *[story("no node")] * 4, story("no image"), story()]
    shown = Followed(*steps)
    await follow(shown.read, lambda *_: None, shown.notes.append, Limits(first_pause=2, longest_pause=10))
    assert pauses == [2, 4, 8, 10, 10, 2]
