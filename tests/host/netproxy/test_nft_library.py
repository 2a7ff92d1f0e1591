"""libnftables on the real kernel, compared to the program: contents, network namespaces, errors, memory."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netproxy.errors import WriteError
from netproxy.nft import library, writer
from netproxy.nft.writer import NftWriter
from tests.support.netns import Namespace, namespaces

TABLE = "ip kube-proxy"
START = (
    f"add table {TABLE}\nadd chain {TABLE} c\nadd chain {TABLE} d\n"
    f"add map {TABLE} m {{ typeof ip daddr . meta l4proto . th dport : verdict ; }}\n"
    f"add rule {TABLE} c ip saddr 10.0.0.1 counter drop\n"
)
CHANGES = 2000


def add(number: int, target: str = "c") -> str:
    return f"add element {TABLE} m {{ 10.1.{number >> 8}.{number & 255} . tcp . 80 : goto {target} }}\n"


@pytest.fixture
def places() -> Iterator[list[Namespace]]:
    with namespaces(f"nl-a{os.getpid()}", f"nl-b{os.getpid()}") as made:
        yield made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines of the programs that the writer starts."""
    commands: list[list[str]] = []
    run = writer.run

    async def recorded(argv: list[str], **options: object) -> object:
        commands.append(argv)
        return await run(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "run", recorded)
    return commands


pytestmark = pytest.mark.skipif("WHERRY_NFT_LIBRARY" in os.environ, reason="the program makes all changes")


def test_a_table_is_the_same_as_that_of_the_program(places: list[Namespace], started: list[list[str]]) -> None:
    texts = [
        START,
        add(1) + add(2),
        f"delete element {TABLE} m {{ 10.1.0.1 . tcp . 80 }}\n",
        f"flush chain {TABLE} c\n",
    ]

    async def fill(in_process: bool) -> None:
        nft = NftWriter(in_process=in_process)
        for text in texts:
            await nft.apply(text)

    places[0].inside(lambda: fill(True))
    assert not started
    places[1].inside(lambda: fill(False))
    first, second = (place.run("nft", "list", "ruleset") for place in places)
    assert first == second and "10.1.0.2" in first


def test_each_event_loop_writes_to_the_namespace_of_its_thread(places: list[Namespace]) -> None:
    for number, place in enumerate(places):
        place.inside(lambda number=number: NftWriter(in_process=True).apply(START + add(number)))  # type: ignore[misc]
    for number, place in enumerate(places):
        assert f"10.1.0.{number}" in place.run("nft", "list", "ruleset")
        assert f"10.1.0.{1 - number}" not in place.run("nft", "list", "ruleset")


@pytest.mark.parametrize("bad", [add(2, "nowhere"), f"add element {TABLE} m {{ 10.1.0.3 . tcpx . 80 : goto c }}\n"])
def test_a_refused_change_has_the_programs_error_and_no_effect(
    bad: str, places: list[Namespace], started: list[list[str]]
) -> None:
    async def refused(in_process: bool) -> str:
        nft = NftWriter(in_process=in_process)
        await nft.apply(START)
        with pytest.raises(WriteError) as caught:
            await nft.apply(add(1) + bad)
        await nft.apply(add(4))
        assert list((await nft.read()).elements) == [("m", "10.1.0.4 . tcp . 80")]
        return str(caught.value)

    messages = [
        place.inside(lambda first=first: refused(first)) for place, first in zip(places, (True, False), strict=True)
    ]  # type: ignore[misc]
    assert messages[0] == messages[1] and "/dev/stdin:2:" in messages[0]
    assert ["nft", "-f", "-"] in started


def test_a_change_after_those_of_other_programs_sees_them(places: list[Namespace], started: list[list[str]]) -> None:
    async def check() -> None:
        nft = NftWriter(in_process=True)
        await nft.apply(START + add(1))
        await asyncio.to_thread(places[0].run, "nft", f"add chain {TABLE} e; delete chain {TABLE} d")
        await nft.apply(add(2, "e"))
        await asyncio.to_thread(places[0].run, "nft", "flush ruleset")
        await nft.apply(START + add(3))
        assert not started
        assert list((await nft.read()).elements) == [("m", "10.1.0.3 . tcp . 80")]

    places[0].inside(check)


def test_a_large_change_is_the_programs(places: list[Namespace], started: list[list[str]]) -> None:
    text = START + "".join(add(number) for number in range(library.LARGEST // len(add(1)) + 1))
    places[0].inside(lambda: NftWriter(in_process=True).apply(text))
    assert started == [["nft", "-f", "-"]]


def test_without_the_library_the_program_makes_changes(
    places: list[Namespace],
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(library, "NAME", "libnothing.so.1")

    async def check() -> None:
        nft = NftWriter(in_process=True)
        await nft.apply(START)
        await nft.apply(add(1))

    places[0].inside(check)
    assert "10.1.0.1" in places[0].run("nft", "list", "ruleset")
    assert len(started) == 2 and len(caplog.records) == 1 and "libnothing.so.1" in caplog.text


def test_changes_and_refused_ones_leave_no_memory(places: list[Namespace]) -> None:
    async def changes(count: int) -> None:
        for number in range(count):
            assert await library.apply(add(number % 500), 60) == ""
            assert (
                await library.apply(
                    f"delete element {TABLE} m {{ 10.1.{(number % 500) >> 8}.{number % 500 & 255} . tcp . 80 }}\n", 60
                )
                == ""
            )
            assert await library.apply(add(number % 500, "nowhere"), 60)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def check() -> None:
        await NftWriter(in_process=True).apply(START)
        await changes(CHANGES // 10)
        before = resident()
        await changes(CHANGES)
        assert resident() - before < 1 << 20

    places[0].inside(check)
