"""Round robin over owners, compared with a slow model of it under drawn sequences."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kube.round_robin import RoundRobin

KEYS = [f"{owner}/{number}" for owner in "abc" for number in range(4)]
STEPS = st.lists(st.one_of(st.sampled_from(KEYS), st.just("take"), st.integers(0, 5)), max_size=60)


def owner_of(key: str) -> str:
    return key.partition("/")[0]


class Model:
    """A list of the keys that wait, and one of owners in the order of their turns."""

    def __init__(self, each: int) -> None:
        self.each, self.waiting, self.turns = each, list[str](), list[str]()
        self.taken: Counter[str] = Counter()

    def ready(self) -> list[str]:
        waiting = {owner_of(key) for key in self.waiting}
        return [owner for owner in self.turns if owner in waiting and self.taken[owner] < self.each]

    def update(self, behind: str = "") -> None:
        """Give owners that may have a worker a turn, behind the others; take it from the rest."""
        able = [owner_of(key) for key in self.waiting if self.taken[owner_of(key)] < self.each]
        kept = [owner for owner in self.turns if owner in able and owner != behind]
        self.turns = kept + [owner for owner in dict.fromkeys(able) if owner not in kept]

    def append(self, key: str) -> None:
        self.waiting.append(key)
        self.update()

    def take(self) -> str:
        owner = self.ready()[0]
        key = next(key for key in self.waiting if owner_of(key) == owner)
        self.waiting.remove(key)
        self.taken[owner] += 1
        self.update(behind=owner)
        return key

    def release(self, key: str) -> None:
        self.taken[owner_of(key)] -= 1
        self.update()


@given(st.integers(1, 3), STEPS)
def test_owners_have_turns_and_a_limited_number_of_workers(each: int, steps: list[str | int]) -> None:
    queue, model = RoundRobin(owner_of, each), Model(each)
    taken: list[str] = []
    for step in steps:
        if isinstance(step, int):
            if step < len(taken):
                key = taken.pop(step)
                queue.release(key)
                model.release(key)
        elif step == "take":
            if queue:
                key = queue.popleft()
                assert key == model.take()
                taken.append(key)
        elif step not in taken and step not in model.waiting:
            queue.append(step)
            model.append(step)
        assert len(queue) == len(model.waiting) and bool(queue) == bool(model.ready())
        assert max(Counter(map(owner_of, taken)).values(), default=0) <= each


def test_one_owner_leaves_workers_to_others() -> None:
    queue = RoundRobin(owner_of, 2)
    for key in ("a/1", "a/2", "a/3", "a/4", "b/1"):
        queue.append(key)
    assert [queue.popleft() for _ in range(3)] == ["a/1", "b/1", "a/2"]
    assert not queue and len(queue) == 2
    queue.release("a/2")
    assert queue.popleft() == "a/3" and not queue


def test_owners_without_keys_are_forgotten() -> None:
    queue = RoundRobin(owner_of)
    for key in KEYS:
        queue.append(key)
    for _ in KEYS:
        queue.release(queue.popleft())
    assert not (queue or queue._ready or queue._blocked or queue._owners or queue._workers)
