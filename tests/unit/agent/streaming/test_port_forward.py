import pytest

from agent.streaming.port_forward import MOST_PORTS, read_ports


def test_ports_are_read_from_several_parameters_and_lists() -> None:
    assert read_ports(["80,443", "", "8080"]) == [80, 443, 8080]
    assert read_ports([",".join(["80"] * MOST_PORTS)]) == [80] * MOST_PORTS


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["80"] * (MOST_PORTS + 1), "too many ports: 129, at most 128"),
        ([",".join(["80"] * 30_000)], "too many ports: 30000"),
        (["http"], "unable to parse 'http' as ports"),
        (["0"], "port out of range"),
        (["65536"], "port out of range"),
    ],
)
def test_ports_that_cannot_be_forwarded_are_refused(values: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_ports(values)
