"""Clients that watch, list and read all the time, and compare what they receive with the store."""
