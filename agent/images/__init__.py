"""Images: pulls by policy and with credentials, pull records, and garbage collection."""
