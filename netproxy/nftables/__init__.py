"""The nftables mode: flat maps from address and port to endpoint, changed element by element."""
