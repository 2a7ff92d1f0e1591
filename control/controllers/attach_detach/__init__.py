"""Attaching volumes to the nodes where pods want them, and detaching them when the last has gone."""

from control.controllers.attach_detach.controller import AttachDetachController

__all__ = ["AttachDetachController"]
