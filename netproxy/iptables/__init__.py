"""The iptables mode: upstream's chains, written as deltas against a shadow of what is in the kernel."""
