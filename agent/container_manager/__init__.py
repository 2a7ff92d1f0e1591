"""The resource managers, device plugins and DRA drivers of the node behind one interface for pods."""
