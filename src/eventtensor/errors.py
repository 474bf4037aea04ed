"""Every error a user can meet: one class a cause, each with a code, a title and a default hint.

Codes: ET0xx the language, ET1xx tile bodies, ET2xx the proof, ET3xx compiling and running.
`docs/errors.md` is generated from this file.
"""

from __future__ import annotations

from typing import ClassVar

from .place import user_place


class EventTensorError(Exception):
    """Base of all user errors; prints as `code: cause`, place, hint."""

    code: ClassVar[str] = "ET000"
    title: ClassVar[str] = "an eventtensor error"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.place = place if place is not None else user_place()
        self.hint = hint if hint is not None else self.default_hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}", f"  at {self.place}"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def catalogue() -> list[type[EventTensorError]]:
    """All error classes, by code."""
    found = EventTensorError.__subclasses__()
    for cls in found:
        found += cls.__subclasses__()
    return sorted(found, key=lambda c: c.code)


# ---- ET0xx: the language -------------------------------------------------------------------


class BadDim(EventTensorError):
    code, title = "ET001", "a dim with a bad name or range"
    default_hint = "use et.dim('n', min=1, max=4096) with 0 <= min <= max"


class NonAffine(EventTensorError):
    code, title = "ET002", "an index expression that is not affine"
    default_hint = "multiply by constants; // and % take positive constants"


class BadName(EventTensorError):
    code, title = "ET003", "a name that is taken or not an identifier"
    default_hint = "names of tensors, dims, loops, events and calls are unique within a program"


class BadTensor(EventTensorError):
    code, title = "ET004", "a tensor declared with a bad shape, dtype or fact"
    default_hint = "shapes are tuples of ints and dim expressions; dtypes are et.f32, et.bf16, .."


class BadRegion(EventTensorError):
    code, title = "ET005", "a region that does not fit its tensor"
    default_hint = "give one index or slice for each axis, as in a[i*32:i*32+32, j]"


class BadGrid(EventTensorError):
    code, title = "ET006", "a grid or loop extent that cannot be used"
    default_hint = "an extent is an int, a dim expression, or a lambda of the earlier coordinates"


class BadCall(EventTensorError):
    code, title = "ET007", "a call whose arguments do not fit together"
    default_hint = "region lambdas take the tile coordinates; every tensor is of this program"


class BadRole(EventTensorError):
    code, title = "ET008", "a tensor used against its role"
    default_hint = "input and weight are never written; accumulate into scratch, output or state"


class BadEvent(EventTensorError):
    code, title = "ET009", "an event tensor declared or used wrongly"
    default_hint = "declare with p.events(name, shape, count=), use as E[i] in waits= or notifies="


class BadFact(EventTensorError):
    code, title = "ET010", "a fact that cannot be stated"
    default_hint = "p.fact(lambda e: indptr[e] <= indptr[e + 1], over=(experts,))"


class BadText(EventTensorError):
    code, title = "ET011", "program text that does not parse"
    default_hint = "start from str(program); every line of it parses back"


class OrderedDataAccumulate(EventTensorError):
    code, title = "ET012", "ordered accumulation over a data-dependent region"
    default_hint = "pass unordered=True, or write a row per (token, slot) and combine them in order"


# ---- ET1xx: tile bodies --------------------------------------------------------------------


class BadBody(EventTensorError):
    code, title = "ET100", "a task body whose signature does not fit its call"
    default_hint = "arguments: reads, accumulates, writes, in order; coordinates are keyword-only"


class NotTraceable(EventTensorError):
    code, title = "ET101", "Python in a task body that cannot be traced"
    default_hint = "use et.where for data-dependent choices and et.range for run-time loops"


class BadShape(EventTensorError):
    code, title = "ET102", "tile shapes that do not fit"
    default_hint = "axes must have provably equal extents, or be exactly 1 to broadcast"


class BadDType(EventTensorError):
    code, title = "ET103", "tile dtypes that do not fit"
    default_hint = "there is no implicit mixing: use x.cast(et.f32)"


class LoopEscape(EventTensorError):
    code, title = "ET104", "a value made inside an et.range loop is used after it"
    default_hint = "create the tile before the loop and assign into it: acc[:] = acc + x"


class NothingWritten(EventTensorError):
    code, title = "ET105", "a task body that never assigns one of its outputs"
    default_hint = "assign with out[:] = value; accumulate with acc[:] += value"


# ---- ET2xx: the proof ----------------------------------------------------------------------


class ProofError(EventTensorError):
    code, title = "ET200", "the program could not be proved"
    default_hint = "et.check(program) returns all problems with their witnesses"


class UncoveredRead(ProofError):
    code, title = "ET201", "a read that no wait orders after its writer"
    default_hint = "add the missing wait, or leave waits= away so that it is derived"


class NoProducer(ProofError):
    code, title = "ET202", "a read of elements that nobody writes before"
    default_hint = "write them in an earlier call, or make the tensor an input or state"


class CountTooHigh(ProofError):
    code, title = "ET203", "a cell that expects more notifies than it gets (would hang)"
    default_hint = "lower count=, or check the notify maps"


class CountTooLow(ProofError):
    code, title = "ET204", "a cell that gets more notifies than it expects (would run early)"
    default_hint = "raise count=, or check the notify maps"


class IndexOutOfRange(ProofError):
    code, title = "ET205", "an index outside its tensor or event tensor"
    default_hint = "slices may overhang the upper end only; use padded() for halos"


class UnorderedWriters(ProofError):
    code, title = "ET206", "two unordered tasks write the same element"
    default_hint = "make the regions disjoint, use accumulates=, or order the tasks by an event"


class WriteAfterRead(ProofError):
    code, title = "ET207", "a write that may come before an earlier read has finished"
    default_hint = "wait for the reader, or give the tensor one more copy (a ring over the loop)"


class EventCycle(ProofError):
    code, title = "ET208", "a wait for a task that does not come before it in program order"
    default_hint = "edges go forward: notify in an earlier call than the one that waits"


class UnboundedIndex(ProofError):
    code, title = "ET209", "an index read from a tensor that has no declared bound"
    default_hint = "declare the tensor with bound=(lo, hi)"


class Unproved(ProofError):
    code, title = "ET210", "something that could be neither proved nor refuted"
    default_hint = "state what you know of run-time data (bound=, monotone=, distinct=, p.fact)"


class UnequalExtents(ProofError):
    code, title = "ET211", "tile axes that are combined but may differ in extent"
    default_hint = "slice both sides to the same extent"


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
    default_hint = "an NVIDIA GPU and its driver (libcuda.so.1) are needed, or use target='cpu'"


class DeviceFailed(EventTensorError):
    code, title = "ET308", "the CUDA driver refuses or loses a launch"
    default_hint = "after a lost launch the process cannot use the device any more: start a new one"


class UnboundedTile(EventTensorError):
    code, title = "ET309", "a tile whose largest size is not known"
    default_hint = "declare bound= on the tensor that gives its extent"


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
    code, title = "ET342", "an argument of a bound step that is not in device memory"
    default_hint = "move it to the GPU once, or call the kernel itself, which copies host arrays"


class BadStream(EventTensorError):
    code, title = "ET343", "a stream that is none"
    default_hint = "pass None, a handle, or a stream of torch, cupy or cuda.core"


class Misaligned(EventTensorError):
    code, title = "ET344", "a streamed argument that does not begin at a multiple of 16 bytes"
    default_hint = "pass a copy of it"


class BadArtifact(EventTensorError):
    code, title = "ET350", "an artifact folder that cannot be loaded"
    default_hint = "write it again with kernel.save(folder), by this version of eventtensor"


class WrongDevice(EventTensorError):
    code, title = "ET351", "an artifact that was made for another GPU"
    default_hint = "compile and save on the kind of GPU that will run it"
