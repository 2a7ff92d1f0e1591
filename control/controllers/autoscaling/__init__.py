"""The horizontal pod autoscaler. Its modules are imported when there is one (control/controllers/on_demand.py)."""
