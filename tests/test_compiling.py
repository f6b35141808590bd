"""Compilations are announced once each, from outside to inside; what needs none is silent."""

import contextlib

from numba import njit

from searchformer import compiling


def test_only_the_outermost_compilation_is_announced(monkeypatch):
    seen = []

    @contextlib.contextmanager
    def announce():
        seen.append("begin")
        yield
        seen.append("end")

    monkeypatch.setattr(compiling, "announce", announce)
    compiling.watch()
    compiling.watch()

    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x) * 2

    assert outer(1) == 4
    assert seen == ["begin", "end"]
    outer(2)
    assert seen == ["begin", "end"]


def test_where_nobody_listens_nothing_happens(monkeypatch):
    monkeypatch.setattr(compiling, "announce", None)

    @njit
    def alone(x):
        return x

    compiling.watch()
    assert alone(3) == 3


def test_the_note_is_printed_once(capsys):
    from searchformer.commands.progress import CompilingNote

    note = CompilingNote()
    for _ in range(2):
        with note():
            pass
    assert capsys.readouterr().err == f"{CompilingNote.LINE}\n"
