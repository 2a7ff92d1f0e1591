"""The gateway's controller: definitions of the Gateway API, generated objects, and statuses."""
