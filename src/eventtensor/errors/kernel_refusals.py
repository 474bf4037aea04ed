"""ET23x: kernel IR that the verifier refuses. No program is to blame: the compiler is."""

from __future__ import annotations

from .base import EventTensorError

_REPORT = "this is a bug of the compiler: report it with the program and this message"


class KernelRefused(EventTensorError):
    """`path` leads to the node, `reason` says what is wrong there."""

    code, title = "ET230", "kernel IR that breaks a rule of the verifier"
    default_hint = _REPORT

    def __init__(self, body: str, path: str, lines: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"body '{body}' at {path}: {reason}\n{lines}", place=f"body '{body}'")


class NotConverged(KernelRefused):
    code, title = "ET231", "a statement that threads must reach together, where they may part"


class Unordered(KernelRefused):
    code, title = "ET232", "two accesses of a body that no barrier orders"


class OutsideMemory(KernelRefused):
    code, title = "ET233", "an access that is not seen to lie inside its memory"
