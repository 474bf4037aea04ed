"""Identifiers of a kernel. A name of the program stays itself unless C++ or the emitted code needs
it; then it gets a trailing underscore, and names that end in one get one more.
"""

from __future__ import annotations

import re

_KEYWORDS_TEXT = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq
"""
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())
# Locals and functions of the emitted code, and macros of <cmath> and friends.
_TAKEN = re.compile(
    r"(worker|args|arrive|cell|cells|et|std|main|tiles|total|base|row|queue|slot|task|needed|mark|unix|"
    r"linux|errno|stdin|stdout|stderr|NULL|INFINITY|NAN|EOF|RANK|RAND_MAX|"
    r"([eikvbmgtn]|arg)\d+\w*|\w+_(tile|stage|here|words|rows\d+|at\d+)|"
    r"(task|body|hand|grid|group|check|open|ready|push|claimed|release|ticket|CALL|EVENT|TENSOR)_\w+|"
    r"int\d+_t|uint\d+_t|size_t|[A-Z]\w*_(MAX|MIN)|M_\w+|ET_\w+)"
)


def cpp_name(name: str) -> str:
    """Injective: the C++ identifier of a name of the program. `%7` is the value `v7`, and `$e1` the
    name `e1` of lowering."""
    if name.startswith("%"):
        return "v" + name[1:]
    if name.startswith("$"):
        return name[1:]
    if name in _KEYWORDS or name.endswith("_") or _TAKEN.fullmatch(name):
        return name + "_"
    return name
