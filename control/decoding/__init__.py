"""Request bodies, JSON, YAML and protobuf, to plain objects of their types."""
