"""Caches keyed by clients' text keep short keys alone."""

import weakref

from kube.bounded_cache import LONGEST, bounded_cache, forget_all, is_short, on_forget


def test_short_arguments_are_computed_once_and_long_ones_each_time() -> None:
    calls = []

    @bounded_cache(2)
    def double(text: str, times: int = 2) -> str:
        calls.append(text)
        return text * times

    for text in ("a", "a", "b" * LONGEST, "b" * LONGEST, "c" * (LONGEST + 1), "c" * (LONGEST + 1)):
        assert double(text) == text * 2
    assert [call[0] for call in calls] == ["a", "b", "c", "c"]


def test_no_more_entries_are_kept_than_requested() -> None:
    @bounded_cache(2)
    def same(text: str) -> str:
        return text

    for text in "abcdef":
        same(text)
    assert same.cache_info().currsize == 2  # type: ignore[attr-defined]


def test_all_is_computed_anew_once_everything_was_forgotten() -> None:
    calls = []

    @bounded_cache(8)
    def noted(text: str) -> str:
        calls.append(text)
        return text

    for _ in range(2):
        noted("a")
        noted("a")
        forget_all()
    assert calls == ["a", "a"]


def test_the_texts_of_a_key_count_together() -> None:
    assert is_short("a" * 100, "b" * 156)
    assert not is_short("a" * 100, "b" * 157)
    assert is_short("a" * 100, "b" * 157, longest=257)


def test_caches_of_objects_are_cleared_as_long_as_the_objects_are_there() -> None:
    cleared: list[str] = []

    class Cache:
        def forget(self) -> None:
            cleared.append("once")

    cache = Cache()
    gone = weakref.ref(cache)
    on_forget(cache.forget)
    forget_all()
    del cache
    forget_all()
    assert (cleared, gone()) == (["once"], None)
