"""Chains of the portmap plugin that `wherry reset` removes."""

from __future__ import annotations

from wherry.host_port_rules import removal

LEFT = """\
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:OTHER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -j OTHER
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
COMMIT
"""


def test_chains_that_nobody_uses_are_removed_with_the_jumps_to_them() -> None:
    assert removal(LEFT).splitlines() == [
        "*nat",
        ":CNI-HOSTPORT-DNAT - [0:0]",
        ":CNI-HOSTPORT-SETMARK - [0:0]",
        ":CNI-HOSTPORT-MASQ - [0:0]",
        "-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-D OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        '-D POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ',
        "-X CNI-HOSTPORT-DNAT",
        "-X CNI-HOSTPORT-SETMARK",
        "-X CNI-HOSTPORT-MASQ",
        "COMMIT",
    ]


def test_chains_of_a_pod_that_has_host_ports_stay() -> None:
    used = LEFT.replace("COMMIT", "-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8088 -j CNI-DN-0123\nCOMMIT")
    assert removal(used) == ""


def test_a_table_without_them_is_left_alone() -> None:
    assert removal("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j OTHER\nCOMMIT\n") == ""
