"""Selection of the connection that is closed when there are too many, or they hold too much."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable, Stage, peer_of


class Peers:
    """A table whose connections note that they were closed."""

    def __init__(self, **limits: int) -> None:
        self.table = ConnectionTable(ServingLimits(**limits))
        self.closed: list[Connection | None] = []

    def add(self, address: str, stage: Stage = Stage.HEAD, user: str = "") -> Connection:
        made: list[Connection | None] = []
        made.append(self.table.add(address, lambda: self.closed.append(made[0])))
        connection = made[0]
        assert connection is not None
        connection.stage = stage
        if user:
            self.table.identify(connection, user)
        return connection


def test_the_oldest_of_an_address_gives_way_to_a_new_one_of_it() -> None:
    peers = Peers(unauthenticated_per_peer=2)
    other, first, second = peers.add("10.0.0.2"), peers.add("10.0.0.1"), peers.add("10.0.0.1")
    peers.add("10.0.0.1")
    peers.add("10.0.0.1")
    assert peers.closed == [first, second]
    assert other not in peers.closed


def test_a_thousand_clients_behind_one_address_may_connect_at_once_and_three_others_as_well() -> None:
    peers = Peers(connections=10_000)
    for number in range(4000):
        peers.add(f"10.0.0.{number % 4}", Stage.HANDSHAKE)
    assert peers.closed == []


@pytest.mark.parametrize("stuck", Stage)
def test_a_flood_that_stands_still_at_one_point_closes_its_own_connections(stuck: Stage) -> None:
    peers = Peers(unauthenticated_per_peer=64)
    flood = [peers.add("10.0.0.1", stuck) for _ in range(64)]
    good = peers.add("10.0.0.1", Stage.IDLE)
    for stage in (Stage.IDLE, Stage.HANDSHAKE, Stage.HEAD, Stage.REQUEST):
        good.stage = stage
        flood += [peers.add("10.0.0.1", stuck) for _ in range(10)]
    assert good not in peers.closed
    assert peers.closed == flood[:41]


def test_of_those_that_have_come_as_far_an_idle_one_goes_first() -> None:
    peers = Peers(unauthenticated_per_peer=3)
    made = [peers.add("10.0.0.1", stage) for stage in (Stage.REQUEST, Stage.HEAD, Stage.IDLE)]
    peers.add("10.0.0.1")
    assert peers.closed == [made[2]]


def test_of_many_addresses_the_one_with_most_connections_loses_one() -> None:
    peers = Peers(unauthenticated=6, unauthenticated_per_peer=6)
    few = [peers.add(f"10.0.0.{number}") for number in (1, 2)]
    many = [peers.add("10.0.0.9") for _ in range(4)]
    peers.add("10.0.0.3")
    assert peers.closed == [many[0]]
    assert not set(few) & set(peers.closed)


def test_connections_of_users_are_not_closed_for_those_of_nobody() -> None:
    peers = Peers(unauthenticated=4, connections=6)
    users = [peers.add("10.0.0.1", Stage.IDLE, f"user-{number}") for number in range(4)]
    for _ in range(50):
        peers.add("10.0.0.1")
    assert not set(users) & set(peers.closed)
    assert (peers.table.authenticated, peers.table.unauthenticated) == (4, 2)


def test_a_user_with_most_of_all_connections_loses_one_to_a_newcomer() -> None:
    peers = Peers(connections=6)
    node = peers.add("10.0.0.1", Stage.REQUEST, "system:node:a")
    hoard = [peers.add("10.0.0.2", Stage.REQUEST, "low") for _ in range(5)]
    peers.add("10.0.0.1", user="system:node:b")
    assert peers.closed == [hoard[0]]
    assert node not in peers.closed


def test_a_newcomer_is_refused_where_everything_is_in_use_by_many() -> None:
    peers = Peers(connections=4)
    for number in range(4):
        peers.add("10.0.0.1", Stage.REQUEST, f"user-{number}")
    assert peers.table.add("10.0.0.1", lambda: None) is None
    assert peers.closed == []
    assert peers.table.closed == 1


def test_who_holds_most_is_closed_where_too_much_is_held_and_nobody_goes_before_somebody() -> None:
    peers = Peers(heads_bytes=100)
    user, small, large = peers.add("1", user="user"), peers.add("2"), peers.add("3")
    peers.table.hold_head(user, 60)
    peers.table.hold_head(small, 10)
    peers.table.hold_head(large, 31)
    assert peers.closed == [large]
    assert peers.table.buffered_bytes == 70
    peers.table.hold_head(user, 95)
    assert peers.closed == [large, small]
    assert peers.table.buffered_bytes == 95


def test_one_answer_may_be_larger_than_the_limit_and_two_may_not() -> None:
    peers = Peers(unread_bytes=100)
    large, other = peers.add("1", user="user"), peers.add("2", user="other")
    peers.table.hold_answer(large, 1000)
    assert peers.closed == []
    peers.table.hold_answer(other, 10)
    assert peers.closed == [large]
    assert peers.table.buffered_bytes == 10


def test_one_user_that_reads_nothing_may_hold_an_eighth_of_all_unread_answers() -> None:
    peers = Peers(unread_bytes=800)
    mine = [peers.add("1", user="user") for _ in range(3)]
    other = peers.add("1", user="other")
    for connection, size in zip((other, *mine), (90, 40, 50, 30), strict=True):
        peers.table.hold_answer(connection, size)
        peers.table.hold_stalled(connection, size)
    assert peers.closed == [mine[1]]
    assert peers.table.buffered_bytes == 160


def test_of_one_users_answers_one_of_the_namespace_that_holds_most_is_closed_first() -> None:
    peers = Peers(unread_bytes=8 * 200)
    alone, *many = (peers.add("1", user="kube-apiserver") for _ in range(4))
    for connection, namespace, size in zip((alone, *many), ("quiet", *["crowd"] * 3), (90, 40, 50, 30), strict=True):
        connection.work_of = namespace
        peers.table.hold_answer(connection, size)
        peers.table.hold_stalled(connection, size)
    assert peers.closed == [many[1]]


def test_what_a_connection_holds_is_its_users_once_it_has_one() -> None:
    peers = Peers(unread_bytes=800)
    known, nobody, late = peers.add("1", user="user"), peers.add("1"), peers.add("1")
    peers.table.hold_stalled(known, 60)
    peers.table.hold_stalled(late, 60)
    peers.table.identify(late, "user")
    peers.table.hold_stalled(nobody, 90)
    assert peers.closed == []
    peers.table.hold_stalled(known, 59)
    assert peers.closed == [late]


def test_large_heads_are_charged_to_the_user_and_before_that_to_the_address() -> None:
    peers = Peers(large_head=10, head_burst=0, head_rate=1)
    first, same, user = peers.add("1"), peers.add("1"), peers.add("1", user="user")
    peers.table.charge_head(first, 10)
    assert peers.table.head_delay(first) == 0
    peers.table.charge_head(first, 20)
    assert peers.table.head_delay(same) > 0
    assert peers.table.head_delay(user) == 0
    peers.table.identify(first, "user")
    assert peers.table.head_delay(first) == 0


def test_a_large_head_is_charged_once_however_its_bytes_arrive() -> None:
    peers = Peers(large_head=10, head_burst=100, head_rate=1)
    at_once, in_parts = peers.add("1"), peers.add("2")
    peers.table.charge_head(at_once, 150)
    for size, charged in ((5, 0), (80, 5), (120, 80), (150, 120), (150, 150)):
        peers.table.charge_head(in_parts, size, charged)
    assert round(peers.table.head_delay(at_once)) == round(peers.table.head_delay(in_parts)) == 40 // 4 * 1
    assert peers.table.head_delay(peers.add("3")) == 0


def test_addresses_of_one_network_of_ipv6_are_one_peer() -> None:
    assert peer_of("2001:db8::1") == peer_of("2001:db8::2") != peer_of("2001:db8:0:1::1")
    assert peer_of("::ffff:10.0.0.1") == peer_of("10.0.0.1") == "10.0.0.1"
    assert peer_of("fe80::1%eth0") == peer_of("fe80::2")
    assert peer_of("::1") == "::1"


@given(st.integers(0, 2**32 - 1))
def test_counts_stay_right_and_within_the_limits_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    peers = Peers(unauthenticated=12, unauthenticated_per_peer=5, connections=20, unread_bytes=200)
    table, living = peers.table, list[Connection]()

    for _ in range(200):
        living = [each for each in living if each not in set(peers.closed)]
        match chance.randrange(6):
            case 0 | 1:
                made: list[Connection] = []
                found = table.add(f"10.0.0.{chance.randrange(4)}", lambda made=made: peers.closed.append(made[0]))  # type: ignore[misc]
                if found is not None:
                    made.append(found)
                    living.append(found)
            case 2 if living:
                table.identify(chance.choice(living), f"user-{chance.randrange(4)}")
            case 3 if living:
                table.hold_answer(chance.choice(living), chance.randrange(120))
            case 4 if living:
                chance.choice(living).stage = chance.choice(list(Stage))
            case 5 if living:
                table.remove(living.pop(chance.randrange(len(living))))
            case _:
                pass
        alive = [each for each in living if each not in set(peers.closed)]
        assert len(table) == len(alive) <= 20
        assert table.unauthenticated == sum(not each.user for each in alive) <= 12
        assert table.buffered_bytes == sum(table._answers.sizes.values()) <= 200
        assert set(table._answers.sizes) <= set(alive)
    for each in alive:
        table.remove(each)
    assert len(table) == table.buffered_bytes == 0
    assert (table._peers, table._users, table._answers.sizes) == ({}, {}, {})


def test_the_service_accounts_of_a_namespace_count_as_one_user() -> None:
    peers = Peers()
    accounts = [peers.add("10.0.0.1", user=f"system:serviceaccount:shop:a{n}") for n in range(2)]
    assert {account.who for account in accounts} == {"system:serviceaccount:shop"}
