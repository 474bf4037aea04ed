"""The interpreter, the meaning of record: NumPy, any legal order, vector clocks."""

from .direct import direct
from .order import Order
from .report import Deadlock, Race, RaceKind, Report
from .run import run
from .tasks import Task

__all__ = ["Deadlock", "Order", "Race", "RaceKind", "Report", "Task", "direct", "run"]
