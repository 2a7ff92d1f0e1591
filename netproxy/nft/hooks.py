"""Priorities of base chains on the kernel's hooks."""

BEFORE_DNAT = -101
"""The priority of chains that translate before those of other programs.

The kernel calls the nat chains of all tables, iptables' too, in the order of their priority, and of equal priority the later
registered first. The first translation of a connection counts. iptables and the CNI plugin portmap have -100 (dstnat).
"""
