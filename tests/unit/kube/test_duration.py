import pytest

from kube import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("1m30s", 90),
        ("1h0m0.5s", 3600.5),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0", 0),
        ("-2s", -2),
        (".5s", 0.5),
    ],
)
def test_go_durations_are_read(text: str, seconds: float) -> None:
    assert duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "soon", "5 s", "s", "1m30", "1.2.3s"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(15.0, "15s"), (15.0123, "15.012s"), (60, "1m0s"), (3661.5, "1h1m1.5s"), (0.7, "700ms"), (0, "0s")],
)
def test_lengths_of_time_print_as_go_has_them(seconds: float, text: str) -> None:
    assert duration.render(seconds) == text
