"""The limit on matches of a namespace's routes over all of its Gateways."""

from __future__ import annotations

import random

from kube.gateway.match_limit import MOST_MATCHES, MatchLimit, Usage


class Gateways:
    """Gateways that are computed again when they are reported. Each has routes of the namespace `n`."""

    def __init__(self) -> None:
        self.reported: set[str] = set()
        self.wanted: dict[str, tuple[str, int]] = {}
        self.served: dict[str, int] = {}
        self.limit = MatchLimit(self.reported.add)
        self.computations = 0

    def put(self, key: str, created: str, matches: int) -> None:
        """Have a Gateway with one route of so many matches, unless it is refused."""
        self.wanted[key] = created, matches
        self.reported.add(key)

    def compute(self, key: str) -> None:
        created, matches = self.wanted[key]
        age = created, key
        before = self.limit.used_before(age, ["n"])
        fits = before["n"] + matches <= MOST_MATCHES
        self.served[key] = matches if fits else 0
        self.limit.record(age, Usage({"n": matches} if fits else {}, frozenset() if fits else frozenset("n")), before)
        self.computations += 1

    def settle(self, order: random.Random) -> dict[str, int]:
        while self.reported:
            key = order.choice(sorted(self.reported))
            self.reported.discard(key)
            self.compute(key)
        return {key: each for key, each in self.served.items() if each}


def test_older_gateways_come_first_in_whatever_order_they_are_computed() -> None:
    for seed in range(50):
        order, found = random.Random(seed), Gateways()
        for number, matches in enumerate((3000, 4000, 3000, 1000, 500)):
            found.put(f"g{9 - number}", f"2026-01-0{number + 1}", matches)
        assert found.settle(order) == {"g9": 3000, "g8": 4000, "g6": 1000}
        found.put("g8", "2026-01-02", 100)
        assert found.settle(order) == {"g9": 3000, "g8": 100, "g7": 3000, "g6": 1000, "g5": 500}
        found.put("g8", "2026-01-06", 4000)  # another Gateway of the same name
        assert found.settle(order) == {"g9": 3000, "g7": 3000, "g6": 1000, "g5": 500}
        del found.served["g9"], found.wanted["g9"]
        found.limit.forget("g9")
        assert found.settle(order) == {"g7": 3000, "g6": 1000, "g5": 500}  # 3692 are left, 4000 wanted
        del found.served["g7"], found.wanted["g7"]
        found.limit.forget("g7")
        assert found.settle(order) == {"g8": 4000, "g6": 1000, "g5": 500}


def test_changes_within_the_limit_affect_no_other_gateway() -> None:
    order, found = random.Random(0), Gateways()
    for number in range(30):
        found.put(f"g{number:02}", "2026", 100)
    found.settle(order)
    found.computations = 0
    found.put("g00", "2026", 200)
    found.settle(order)
    found.limit.forget("g01")
    assert found.computations == 1 and not found.reported


def test_a_gateway_is_computed_again_if_an_older_one_was_recorded_meanwhile() -> None:
    reported: list[str] = []
    limit = MatchLimit(reported.append)
    before = limit.used_before(("2026-02", "new"), ["n"])
    limit.record(("2026-01", "old"), Usage({"n": MOST_MATCHES}, frozenset()), {})
    assert reported == []
    limit.record(("2026-02", "new"), Usage({"n": 1}, frozenset()), before)
    assert reported == ["new"]


def test_nothing_is_kept_of_gateways_that_are_gone() -> None:
    limit = MatchLimit(lambda key: None)
    for number in range(20):
        limit.record(("2026", f"g{number}"), Usage({f"n{number}": 1}, frozenset({"m"})), {})
    for number in range(20):
        limit.forget(f"g{number}")
    limit.forget("unknown")
    assert not limit._gateways and not limit._keys
