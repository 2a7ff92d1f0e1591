from control.controllers.garbage.collector import GarbageCollector

__all__ = ["GarbageCollector"]
