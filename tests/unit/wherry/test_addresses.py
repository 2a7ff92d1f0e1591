"""Selection of a machine's address."""

from wherry.addresses import choose


def test_the_default_routes_address_is_taken() -> None:
    assert choose("192.0.2.7", ["198.51.100.1", "192.0.2.7"]) == "192.0.2.7"


def test_an_address_that_every_virtual_machine_has_is_not_taken_where_there_is_another() -> None:
    assert choose("10.0.2.15", ["10.0.2.15", "192.168.56.11"]) == "192.168.56.11"


def test_where_there_is_no_other_it_has_to_do() -> None:
    assert choose("10.0.2.15", ["10.0.2.15"]) == "10.0.2.15"


def test_a_machine_without_a_way_out_is_known_by_its_device() -> None:
    assert choose("", ["10.0.2.15", "192.168.56.11"]) == "192.168.56.11"
    assert choose("", []) == ""
