"""The interpreter, which defines what a program means: NumPy, any legal order, vector clocks."""

from .ready_queue import Order
from .reference import run_reference
from .run import run
from .run_report import Deadlock, Race, RaceKind, Report
from .tasks import Task

__all__ = ["Deadlock", "Order", "Race", "RaceKind", "Report", "Task", "run", "run_reference"]
