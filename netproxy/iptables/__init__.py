"""The iptables mode: upstream's chains, written as deltas against a shadow of the kernel's tables."""
