"""Compiles a kernel's functions for a domain: one algorithm text, every domain, a warm start.

The kernel's text names a domain's rules (`successors`, `heuristic`, ...) without defining them. For each domain its
functions are copied with the domain's own rules as globals of these names, and then compiled. Closures would be the
usual way, but numba's on-disk cache does not find them again; instead, a copy's name holds a fingerprint of the rules,
by which a second process finds the machine code, for plug-in domains as well. A changed rule changes the name.
"""

import dis
import hashlib
import types
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from searchformer import compiling
from searchformer.domains import Rules


def _no_layout(settings, stream, problem):
    return True


def _no_index(problem, state):
    return -1


def _foresee_nothing(problem):
    return -1


def _accept_all(problem, plan_nodes):
    return True


def _start_at_the_end(problem, state):
    first = len(problem) - len(state)
    for index in range(len(state)):
        state[index] = problem[first + index]


def _oldest_first(problem, state):
    return 0


def _heuristic_is_zero(problem, state):
    return heuristic(problem, state) == 0  # type: ignore[name-defined]  # noqa: F821 (bound by `bind`)


def bind(rules: Rules) -> dict[str, Callable]:
    """The rules by name, with defaults for those that the domain does not define."""
    functions = {name: function for name, function in rules._asdict().items() if function is not None}
    functions.setdefault("sample_layout", _no_layout)
    functions.setdefault("state_index", _no_index)
    functions.setdefault("foresee", _foresee_nothing)
    functions.setdefault("accepts", _accept_all)
    functions.setdefault("start", _start_at_the_end)
    functions.setdefault("write_plan", rules.write_state)
    functions.setdefault("tie_rank", _oldest_first)
    if "is_goal" not in functions:
        functions["is_goal"] = copy_function(_heuristic_is_zero, {"heuristic": rules.heuristic})
    return functions


def copy_function(function: Any, names: dict[str, Any], *, label: str = "") -> Any:
    """`function` with these globals on top of its own, under another name if `label` is given."""
    scope = {**function.__globals__, **names}
    copied = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    copied.__qualname__ = f"{function.__qualname__}{label}"
    copied.__module__ = function.__module__
    return copied


def _plain(function: Any) -> Any:
    return getattr(function, "py_func", function)


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """A function's code and that of the comprehensions and lambdas in it."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return [code, *(nested for part in inner for nested in _codes(part))]


def _names_used(code: types.CodeType) -> set[str]:
    items = [item for part in _codes(code) for item in dis.get_instructions(part)]
    return {item.argval for item in items if item.opname == "LOAD_GLOBAL"}


def _fingerprint(function: Any, seen: set[int]) -> bytes:
    """Bytes that change when the function, a constant it names, or a function it calls changes."""
    function = _plain(function)
    if id(function) in seen:
        return function.__qualname__.encode()
    seen.add(id(function))
    parts = [repr(function.__defaults__).encode()]
    for code in _codes(function.__code__):
        constants = [part for part in code.co_consts if not isinstance(part, types.CodeType)]
        parts += [code.co_code, repr(constants).encode(), repr(code.co_names).encode()]
    attributes = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(_names_used(function.__code__)):
        value = function.__globals__.get(name)
        parts.append(name.encode() + b"=" + _fingerprint_value(value, seen))
        if isinstance(value, ModuleType):  # constants and compiled functions of a module, such as `rules.LIMIT`
            used = {each: getattr(value, each) for each in sorted(attributes & vars(value).keys())}
            kept = {each: part for each, part in used.items() if not isinstance(part, types.FunctionType)}
            parts += [f"{name}.{each}=".encode() + _fingerprint_value(part, seen) for each, part in kept.items()]
    return b"\0".join(parts)


def _fingerprint_value(value: Any, seen: set[int]) -> bytes:
    """The same of a global's value: a function, or a constant that numba builds into machine code."""
    if isinstance(_plain(value), types.FunctionType):
        return _fingerprint(value, seen)
    if isinstance(value, np.ndarray):  # as bytes: a long array's text leaves its middle out
        return repr((value.dtype, value.shape)).encode() + value.tobytes()
    return repr(value).encode() if isinstance(value, int | float | complex | str | bytes | tuple | np.generic) else b""


def _called_functions(function: Any, scope: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name in sorted(_names_used(function.__code__)):
        value = scope.get(name, function.__globals__.get(name))
        if isinstance(value, types.FunctionType):
            yield name, value


class _Compiler:
    """Compiles functions together with the plain functions they call, each once."""

    def __init__(
        self, text: ModuleType, entries: tuple[str, ...], names: dict[str, Any], constants: dict[str, int], label: str
    ) -> None:
        self.text, self.entries, self.names, self.label = text.__name__, entries, names, label
        self.constants = constants
        self.done: dict[int, Any] = {}

    def compile(self, function: Any, *, rule: bool = False) -> Any:
        """`function` compiled; in the kernel's text the rules are bound by name.

        Only rules, and what they call, may make arrays. The text does without numba's runtime, and so without counting
        references to arrays: two atomic operations for each array that is viewed or handed on.
        """
        import numba

        function = _plain(function)
        if id(function) not in self.done:
            in_text = function.__module__ == self.text
            names, constants = (self.names, self.constants) if in_text else ({}, {})
            called = {
                name: self.compile(value, rule=rule or name in names)
                for name, value in _called_functions(function, names)
            }
            copied = copy_function(function, {**called, **constants}, label=self.label)
            entry = in_text and function.__name__ in self.entries
            how: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": rule}
            self.done[id(function)] = numba.njit(copied, cache=entry, forceinline=not entry, **how)
        return self.done[id(function)]


def specialise(
    text: ModuleType, functions: tuple[str, ...], rules: Rules, *, compiled: bool = True, **constants: int
) -> SimpleNamespace:
    """The named functions of module `text`, bound to these rules, compiled unless the domain says not to be.

    `constants` are globals of the text that are known to the compiler.
    """
    return _specialise(text, functions, rules, compiled, tuple(sorted(constants.items())))


@cache
def _specialise(
    text: ModuleType, functions: tuple[str, ...], rules: Rules, compiled: bool, constants: tuple[tuple[str, int], ...]
) -> SimpleNamespace:
    names = bind(rules)
    if not compiled:
        return SimpleNamespace(**{name: _uncompiled(getattr(text, name), names) for name in functions})
    compiling.watch()
    seen: set[int] = set()
    scope = b"".join(name.encode() + _fingerprint(function, seen) for name, function in sorted(names.items()))
    kernels = b"".join(_fingerprint(getattr(text, name), seen) for name in functions)
    how = _fingerprint(_Compiler.compile, seen) + repr(constants).encode()
    label = "_" + hashlib.blake2b(scope + kernels + how, digest_size=8).hexdigest()
    compiler = _Compiler(text, functions, names, dict(constants), label)
    return SimpleNamespace(**{name: compiler.compile(getattr(text, name)) for name in functions})


def _uncompiled(function: Any, names: dict[str, Any]) -> Any:
    """`function` as plain Python, with the rules bound by name in it and in the kernel functions it calls."""
    called = {
        name: _uncompiled(value, names) if value.__module__ == function.__module__ else value
        for name, value in _called_functions(function, {})
    }
    return copy_function(function, {**names, **called})
