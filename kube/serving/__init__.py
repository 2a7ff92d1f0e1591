"""Listening sockets with limits on connections, and on the size and duration of requests."""
