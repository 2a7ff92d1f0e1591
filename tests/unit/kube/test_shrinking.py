import sys

from kube.shrinking import shrunk


def test_room_of_entries_that_have_gone_is_given_up_in_a_few_steps() -> None:
    found = {f"key-{n}": n for n in range(30_000)}
    full, copies = sys.getsizeof(found), []
    for n in range(30_000):
        if n % 1000:
            del found[f"key-{n}"]
            before, found = found, shrunk(found)
            if found is not before:
                copies.append(len(found))
    assert sys.getsizeof(found) < full / 20
    assert list(found.items()) == [(f"key-{n}", n) for n in range(0, 30_000, 1000)]
    assert 0 < len(copies) < 10 and max(copies) < 10_000, "so that a deletion costs nearly nothing"


def test_one_that_has_only_grown_stays_as_it_is() -> None:
    found = {}
    for n in range(100_000):
        found[n] = n
        assert shrunk(found) is found
