"""Every error a user can meet: one class a cause, each with a code, a title and a default hint.

Codes: ET0xx the language, ET1xx tile bodies, ET2xx the proof, ET3xx compiling and running, ET4xx
models, ET5xx the engine. `docs/errors.md` is generated from these classes.
"""

from .base import *
from .engine import *
from .kernel_refusals import *
from .language import *
from .models import *
from .proof import *
from .runtime import *
