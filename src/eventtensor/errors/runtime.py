"""ET3xx: options, building and running a kernel, arguments of a launch, artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from .base import EventTensorError

# ---- ET30x: options, building and running a kernel -----------------------------------------


class BadOption(EventTensorError):
    code, title = "ET300", "an unknown or out-of-range compile option"
    default_hint = "see et.Options: target, schedule, workers, debug, trace"


class StuckWait(EventTensorError):
    code, title = "ET301", "a wait that no task will end"
    default_hint = "check the count and the notify map; ET_WAIT_LIMIT_S sets the limit"


class NoCompiler(EventTensorError):
    code, title = "ET302", "no C++ compiler"
    default_hint = "install g++ or clang++, or name one in CXX"


class CompileFailed(EventTensorError):
    code, title = "ET303", "the C++ compiler refuses the generated source"
    default_hint = "if the call has a cpp= body, look there first"


class KernelClosed(EventTensorError):
    code, title = "ET304", "a launch of a kernel that is closed"
    default_hint = "compile again, or close later"


class UnboundedGrid(EventTensorError):
    code, title = "ET305", "a queue for a grid of unknown size"
    default_hint = "declare bound= on the tensor of the extent, or schedule the call as ticket"


class NoTrace(EventTensorError):
    code, title = "ET306", "a trace was asked of a kernel that keeps none"
    default_hint = "compile with trace=True and launch once"


class NoDevice(EventTensorError):
    code, title = "ET307", "no CUDA device or driver"
    default_hint = ("an NVIDIA GPU and its driver (libcuda.so.1) are needed to launch; "
                    "device='h200' compiles for one that is elsewhere, target='cpu' needs none")


class DeviceFailed(EventTensorError):
    code, title = "ET308", "the CUDA driver refuses or loses a launch"
    default_hint = "after a lost launch the process cannot use the device any more: start a new one"


class UnboundedTile(EventTensorError):
    code, title = "ET309", "a tile whose largest size is not known"
    default_hint = "declare bound= on the tensor that gives its extent"


class DataRefused(EventTensorError):
    """`broken` says of each obligation that fails where and by which values."""

    code, title = "ET317", "run-time data that breaks what the proof rests on"
    default_hint = "correct the data; et.check(program).obligations lists what must hold"

    def __init__(
        self, message: str, *, place: str | None = None, hint: str | None = None,
        broken: Sequence[str] = (),
    ) -> None:
        super().__init__("\n  ".join([message, *broken]), place=place, hint=hint)
        self.broken = tuple(broken)


class NoRoom(EventTensorError):
    code, title = "ET319", "too little shared memory for what a kernel streams"
    default_hint = "smaller tiles, or stream=False"


# ---- ET31x and ET32x: what a run on the interpreter finds ----------------------------------


class BadPlan(EventTensorError):
    code, title = "ET310", "a plan that does not fit its program"
    default_hint = "derive the plan from this very program"


class RaceFound(EventTensorError):
    code, title = "ET311", "two tasks touch one element and no event orders them"
    default_hint = "let the later task wait for an event that the earlier one notifies"


class DeadlockFound(EventTensorError):
    code, title = "ET312", "tasks wait for cells that never reach their count"
    default_hint = "lower the count, or let the missing tasks notify the cell"


class UninitialisedRead(EventTensorError):
    code, title = "ET313", "an element is read before any task has written it"
    default_hint = "write the element first, and wait for the task that does"


class OverNotified(EventTensorError):
    code, title = "ET314", "a cell gets more notifies than its count"
    default_hint = "raise the count, or check the notify map: waits may end too early"


class OutOfRange(EventTensorError):
    code, title = "ET315", "an index outside its tensor, tile or event tensor"
    default_hint = "slices may overhang only the upper end; use padded(lo, hi, value) for halos"


class ExtentMismatch(EventTensorError):
    code, title = "ET316", "tiles whose run-time extents differ meet in one operation"
    default_hint = "take both tiles over the same range, so that they are clipped alike"


class NotWritten(EventTensorError):
    code, title = "ET320", "a task leaves part of its declared write region unassigned"
    default_hint = "assign the whole tile with out[:] = value, or declare a smaller region"


class FactViolated(EventTensorError):
    code, title = "ET321", "run-time data breaks a declared fact"
    default_hint = "the proof took this fact as true: correct the data, or drop the fact"


class BoundViolated(EventTensorError):
    code, title = "ET322", "run-time data lies outside its declared bound"
    default_hint = "the proof took this bound as true: correct the data, or widen the bound"


class CountMismatch(EventTensorError):
    code, title = "ET323", "a cell ends with another value than its count"
    default_hint = "the count must equal the number of notifies; check both maps"


class OutputNotWritten(EventTensorError):
    code, title = "ET324", "an output with elements that no task has written when a launch ends"
    default_hint = "run-time data leaves them out: correct it, or declare the output partial=True"


# ---- ET33x to ET35x: arguments of a launch, artifacts --------------------------------------


class MissingArgument(EventTensorError):
    code, title = "ET330", "an argument is missing"
    default_hint = "pass every input, weight, state and output by name"


class UnknownArgument(EventTensorError):
    code, title = "ET331", "an argument that the program does not have"
    default_hint = "arguments are tensors of the program other than scratch, and dims"


class NotAnArray(EventTensorError):
    code, title = "ET332", "an argument that is not an array"
    default_hint = "pass a NumPy array, or a CPU tensor that speaks DLPack"


class WrongDType(EventTensorError):
    code, title = "ET333", "an argument of the wrong dtype"
    default_hint = "convert the array; nothing is converted on the way in"


class WrongRank(EventTensorError):
    code, title = "ET334", "an argument with the wrong number of axes"
    default_hint = "reshape the array"


class WrongShape(EventTensorError):
    code, title = "ET335", "an argument of the wrong shape"
    default_hint = "the sizes of all arguments come from the same dims"


class DimConflict(EventTensorError):
    code, title = "ET336", "two arguments give one dim different values"
    default_hint = "check which of the arrays has the right size"


class DimOutOfRange(EventTensorError):
    code, title = "ET337", "a dim outside its declared range"
    default_hint = "the proof covers the declared range only; widen it in et.dim(.., max=)"


class DimUnknown(EventTensorError):
    code, title = "ET338", "a dim that no argument's shape gives"
    default_hint = "pass the dim by name, as an int"


class NotContiguous(EventTensorError):
    code, title = "ET339", "an argument that is not laid out row by row"
    default_hint = "pass numpy.ascontiguousarray(x)"


class ReadOnlyOutput(EventTensorError):
    code, title = "ET340", "an output or state that cannot be written"
    default_hint = "pass a writable array"


class OverlappingArguments(EventTensorError):
    code, title = "ET341", "two arguments share memory and one of them is written"
    default_hint = "pass separate arrays"


class HostArgument(EventTensorError):
    code, title = "ET342", "an argument of a bound launch that is not in device memory"
    default_hint = "move it to the GPU once, or call the kernel itself, which copies host arrays"


class BadStream(EventTensorError):
    code, title = "ET343", "a stream that is none"
    default_hint = "pass None, a handle, or a stream of torch, cupy or cuda.core"


class Misaligned(EventTensorError):
    code, title = "ET344", "a streamed argument that does not begin at a multiple of 16 bytes"
    default_hint = "pass a copy of it"


class LaunchTooLarge(EventTensorError):
    code, title = "ET345", "a launch with more tasks, cells or bytes than can be counted"
    default_hint = "check the dims; declare max= where a dim has a largest value"


class OutOfMemory(EventTensorError):
    code, title = "ET346", "memory that a launch needs and the machine does not have"
    default_hint = "smaller dims or tiles, or a machine with more memory"


class MisalignedElements(EventTensorError):
    code, title = "ET347", "an argument whose elements do not begin at multiples of their size"
    default_hint = "pass a copy of it: x.copy()"


class NoThreads(EventTensorError):
    code, title = "ET348", "worker threads that the machine cannot start"
    default_hint = "fewer workers (workers=, ET_WORKERS), or a higher limit of threads (ulimit -u)"


class CacheUnusable(EventTensorError):
    code, title = "ET349", "a cache folder that other users own or can write to"
    default_hint = "set ET_CACHE_DIR to a folder of your own"


class BadArtifact(EventTensorError):
    code, title = "ET350", "an artifact folder that cannot be loaded"
    default_hint = "write it again with kernel.save(folder), by this version of eventtensor"


class WrongDevice(EventTensorError):
    code, title = "ET351", "an artifact that was made for another GPU"
    default_hint = "compile it for the machine that will run it"


class DiskFull(EventTensorError):
    code, title = "ET352", "a disk without room for what is written"
    default_hint = "free some room, or set ET_CACHE_DIR to a folder on another disk"


class CannotWrite(EventTensorError):
    code, title = "ET353", "a file or folder that cannot be written"
    default_hint = "name a folder that you may write to; ET_CACHE_DIR names that of the cache"


class LibraryRefused(EventTensorError):
    code, title = "ET354", "a built library that the system does not load"
    default_hint = "is the folder on a disk mounted noexec? ET_CACHE_DIR names that of the cache"


class BrokenProgramFile(EventTensorError):
    code, title = "ET355", "a file of a program that raises an error of its own"
    default_hint = "run it by itself with python to see the whole traceback"


class SystemRefused(EventTensorError):
    code, title = "ET356", "a file, address or text that the system refuses to a command"
    default_hint = "check its name, who may use it, and whether it is there"
