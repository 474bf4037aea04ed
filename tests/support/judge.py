"""The ground truth at given dims: every fault of a program with its events, by enumeration."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.world import Act, Cell, Element, World, clock_at, order_of

Name = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Fault:
    """`kind` in the words of the report; `tasks` in program order; `where` a tensor or event."""

    kind: str
    tasks: tuple[Name, ...]
    where: str

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(call for call, _ in self.tasks)


@dataclass(frozen=True)
class Need:
    """`first` must have ended before the access of `second`, which follows its first `stage`
    waits."""

    kind: str
    first: int
    second: int
    stage: int
    tensor: str


def faults_of(world: World) -> set[Fault]:
    acts = world.acts
    found = {Fault("out-of-range", (a.name,), a.outside) for a in acts if a.outside is not None}
    if found:
        return found
    needs, bad = needs_of(world)
    return bad | _counts(world) | _cycles(world) | _uncovered(world, needs)


# ---- what must be ordered ------------------------------------------------------------------


@dataclass
class _History:
    """Who wrote an element last, and who has read it since."""

    writers: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()


def needs_of(world: World) -> tuple[set[Need], set[Fault]]:
    """Consecutive conflicts, and what no event can mend: reads of nothing, tiles of one call that
    touch one element."""
    history: dict[Element, _History] = defaultdict(_History)
    needs: set[Need] = set()
    bad: set[Fault] = set()
    for group in _groups(world):
        used = _by_element(world, group)
        for element, who in used.items():
            bad |= _same_call(world, element, who)
            needs |= _step(world, element, who, history[element], bad)
    return needs, bad


def _groups(world: World) -> Iterator[list[int]]:
    """Acts that the program leaves concurrent: the tiles of a call in one iteration."""
    group: list[int] = []
    for k, act in enumerate(world.acts):
        first = world.acts[group[0]] if group else act
        if (act.time, act.header) != (first.time, first.header):
            yield group
            group = []
        group.append(k)
    if group:
        yield group


@dataclass
class _Users:
    readers: list[int]
    writers: list[int]
    adders: list[int]


def _by_element(world: World, group: list[int]) -> dict[Element, _Users]:
    used: dict[Element, _Users] = defaultdict(lambda: _Users([], [], []))
    for k in group:
        act = world.acts[k]
        for e in act.reads:
            used[e].readers.append(k)
        for e in act.writes:
            used[e].writers.append(k)
        for e in act.adds:
            used[e].adders.append(k)
    return used


def _same_call(world: World, element: Element, who: _Users) -> set[Fault]:
    changed = [(k, "w") for k in who.writers] + [(k, "a") for k in who.adders]
    found = set()
    for n, (a, how_a) in enumerate(changed):
        for b, how_b in changed[n + 1 :]:
            if a != b and (how_a, how_b) != ("a", "a"):
                found.add(_pair(world, "write-write", a, b, element[0]))
        for b in who.readers:
            if a != b:
                found.add(_pair(world, "uncovered-read", a, b, element[0]))
    return found


def _pair(world: World, kind: str, a: int, b: int, tensor: str) -> Fault:
    a, b = min(a, b), max(a, b)
    return Fault(kind, (world.acts[a].name, world.acts[b].name), tensor)


def _step(
    world: World, element: Element, who: _Users, past: _History, bad: set[Fault]
) -> set[Need]:
    tensor = element[0]
    needs: set[Need] = set()
    if not past.writers and not world.program.tensor(tensor).role.starts_defined:
        bad |= {Fault("no-producer", (world.acts[k].name,), tensor) for k in who.readers}
    for k in who.readers:
        stage = world.acts[k].reads[element]
        needs |= {Need("uncovered-read", w, k, stage, tensor) for w in past.writers}
    start = past.readers, past.writers
    for k in sorted({*who.writers, *who.adders}):
        adds = k in who.adders
        needs |= _write(k, world.acts[k].begin, adds, tensor, past)
        if adds and not world.acts[k].unordered:
            past.writers, past.readers = (k,), ()
    plain = [*who.writers, *(k for k in who.adders if world.acts[k].unordered)]
    if plain:
        past.writers, past.readers = tuple(plain), ()
    elif not who.adders:
        past.readers, past.writers = (*start[0], *who.readers), start[1]
    return needs


def _write(k: int, begin: int, adds: bool, tensor: str, past: _History) -> set[Need]:
    found = {Need("write-after-read", r, k, begin, tensor) for r in past.readers if r != k}
    found |= {Need("write-write", w, k, begin, tensor) for w in past.writers}
    if adds:
        found |= {Need("uncovered-read", w, k, begin, tensor) for w in past.writers}
    return found


def _uncovered(world: World, needs: set[Need]) -> set[Fault]:
    clocks = order_of(world)
    notifiers: dict[Cell, int] = {}
    for k, act in enumerate(world.acts):
        for cell in act.notified:
            notifiers[cell] = notifiers.get(cell, 0) | clocks[k] | 1 << k
    found = set()
    for n in needs:
        second = world.acts[n.second]
        if not clock_at(second, clocks, notifiers, n.stage) >> n.first & 1:
            found.add(_pair(world, n.kind, n.first, n.second, n.tensor))
    return found


# ---- counts and cycles ---------------------------------------------------------------------


def _counts(world: World) -> set[Fault]:
    supply = Counter(c for a in world.acts for c in a.notified)
    found = set()
    for act in world.acts:
        for w in act.waited:
            if w.target != supply[w.cell]:
                kind = "count-high" if w.target > supply[w.cell] else "count-low"
                found.add(Fault(kind, (act.name,), w.cell[0]))
    return found


def _cycles(world: World) -> set[Fault]:
    """Waits for a task that is not before the waiter in program order (tiles by coordinate)."""
    notifiers: dict[Cell, list[Act]] = defaultdict(list)
    for act in world.acts:
        for cell in act.notified:
            notifiers[cell].append(act)
    found = set()
    for act in world.acts:
        for w in act.waited:
            for n in notifiers[w.cell]:
                earlier = (n.time, n.coords) < (act.time, act.coords)
                if not earlier or (act.header and n.time == act.time):
                    found.add(Fault("cycle", (n.name, act.name), w.cell[0]))
    return found
