"""Rules that a cluster must obey at each step, and that it must reach in the end."""
