from control.controllers.persistent_volumes.controller import PersistentVolumeController

__all__ = ["PersistentVolumeController"]
