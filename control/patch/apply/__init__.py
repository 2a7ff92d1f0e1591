"""Server-side apply and the bookkeeping of field managers."""

from control.patch.apply.apply import apply
from control.patch.apply.conflict_errors import ApplyConflict
from control.patch.apply.track import track_update

__all__ = ["ApplyConflict", "apply", "track_update"]
