"""Readers and writer of level and map files: real samples, round trips, and every refusal with its exact place."""

import itertools
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchformer.domains.formats import (
    FormatError,
    GridTask,
    Level,
    levels_from_text,
    read,
    read_levels,
    read_map,
    read_scenarios,
    write_xsb,
)
from searchformer.domains.formats.levels import MAX_CELLS, MAX_SIDE
from searchformer.domains.formats.source import MAX_FILE, MAX_LINE, MAX_LINES

GOLDEN = Path(__file__).parent / "golden"
SMALL = ("#####", "#@$.#", "#####")
SMALL_TEXT = "#####\n#@$.#\n#####\n"
MAP = "type octile\nheight 2\nwidth 3\nmap\n.GS\n@TW\n"


@pytest.fixture
def save(tmp_path):
    """Write a file and give its path."""

    def save(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return save


def refusal(call, *arguments):
    """(line, column, reason) of the FormatError that the call raises."""
    with pytest.raises(FormatError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value.line, caught.value.column, caught.value.reason


# Sokoban: real files and what people write


def test_microban_is_read_in_full():
    levels = read(GOLDEN / "microban.txt")
    assert [level.title for level in levels] == [str(number) for number in range(1, 156)]
    assert levels[0] == Level("1", ("####  ", "# .#  ", "#  ###", "#*@  #", "#  $ #", "#  ###", "####  "), 15)
    assert levels[2].rows[0] == "  ####   "
    assert levels[154].rows[-1] == "#####       #### ####   ######"
    assert levels[0].record() == {"level": list(levels[0].rows)}


def test_microban_round_trips_through_xsb(tmp_path):
    levels = read_levels(GOLDEN / "microban.txt")
    write_xsb(levels, tmp_path / "copy.xsb")
    assert [(level.title, level.rows) for level in read(tmp_path / "copy.xsb")] == [
        (level.title, level.rows) for level in levels
    ]


def test_boxoban_titles_stand_above_their_levels(save):
    rows = ["##########", *["#        #"] * 4, "# @$. $. #", *["#        #"] * 2, "# $. $.  #", "##########"]
    board = "".join(f"{row}\n" for row in rows)
    levels = read(save("000.txt", f"; 0\n{board}\n; 1\n{board}\n"))
    assert [(level.title, level.rows, level.line) for level in levels] == [
        ("0", tuple(rows), 2),
        ("1", tuple(rows), 14),
    ]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        (f"{SMALL_TEXT}\n{SMALL_TEXT}", ["", ""]),
        (f"First\n{SMALL_TEXT}\nSecond\n{SMALL_TEXT}", ["First", "Second"]),
        (f"; a\n{SMALL_TEXT}; b\n{SMALL_TEXT}", ["a", "b"]),
        (f"; about\n\n{SMALL_TEXT}; a\n{SMALL_TEXT}; b", ["a", "b"]),
        (f"{SMALL_TEXT}Title: a\nAuthor: x\n\n{SMALL_TEXT}Author: x\nTitle:  b ", ["a", "b"]),
        (f"Title: a\n{SMALL_TEXT}\nTitle: b\n{SMALL_TEXT}", ["a", "b"]),
        (f"Title: a\n{SMALL_TEXT}Title: b\n{SMALL_TEXT}", ["a", "b"]),
        (f"{SMALL_TEXT}\nTitle: a\n\n{SMALL_TEXT}\nTitle: b\n", ["a", "b"]),
        (f"1.\n{SMALL_TEXT}\n2. #4\n{SMALL_TEXT}\n'Three'\n{SMALL_TEXT}", ["1.", "2. #4", "Three"]),
        (f"*****\n\n######\n\na\n-----\n{SMALL_TEXT}=====\n", ["a"]),
        (f"### 1 ###\n\n{SMALL_TEXT}", ["### 1 ###"]),
    ],
)
def test_titles_belong_to_the_level_they_stand_at(text, titles):
    assert [(level.title, level.rows) for level in levels_from_text(text)] == [(title, SMALL) for title in titles]


def test_sok_titles_are_found_and_solutions_are_ignored(save):
    text = (
        ":::::::\n:: Sokoban :: # wall :: @ player\n:::::::\nCollection: Two\nAuthor: A. Uthor\n\n"
        f"The first\n\n{SMALL_TEXT}\nAuthor: Someone\n\nSolution/Moves\nR\n\nThe second\n\n{SMALL_TEXT}\n"
        f"Snapshot 1\nrR\nThis is not a title\n\n{SMALL_TEXT}\nTitle: The third\nSolution\nR\n"
    )
    assert [level.title for level in read(save("two.sok", text))] == ["The first", "The second", "The third"]


@pytest.mark.parametrize(
    "text",
    [
        "5#\n#@$.#\n5#",
        "5#|#@$.#|5#",
        "5#|#@$.#|5#|\n",
        "#####\r\n#@$.#\r\n#####\r\n",
        "#####\r#@$.#\r#####\r",
        "\ufeff#####\n#@$.#\n#####",
        "\n\n  #####   \n  #@$.#\t\n  #####\n--\n\n",
    ],
)
def test_one_level_is_read_the_same_from_every_spelling(save, text):
    assert [level.rows for level in read(save("level.txt", text))] == [SMALL]


def test_letters_and_groups_of_the_sok_format_are_read():
    assert levels_from_text("Bob\n--3#|3#-#|#pb.#|5#")[0] == Level("Bob", ("  ###", "### #", "#@$.#", "#####"), 2)
    assert levels_from_text("14#\n2(3(#-)#)\n#PbB9-#\n14#")[0].rows[1:3] == ("# # # ## # # #", "#+$*         #")


def test_hyphen_underscore_and_space_are_floor():
    assert levels_from_text("--####\n###__#\n#@$ .#\n2#2-2#\n_4#")[0].rows == (
        "  ####",
        "###  #",
        "#@$ .#",
        "##  ##",
        " #### ",
    )


@pytest.mark.parametrize(
    "rows",
    [("*###*", "#@$.#", "*###*"), ("*####", "#+$ #", "#####"), ("#####", "#+$*#", "#####")],
)
def test_levels_that_start_with_a_docked_box_or_worker_are_read(rows):
    assert [level.rows for level in levels_from_text("\n".join(rows))] == [rows]


def test_rows_between_two_halls_may_be_empty_cells(tmp_path):
    rows = ("#####", "#@$.#", "#####", "     ", "###  ", "#*#  ", "###  ")
    write_xsb([Level("two halls", rows, 1)], tmp_path / "halls.xsb")
    assert read(tmp_path / "halls.xsb") == [Level("two halls", rows, 1)]


def test_names_in_windows_1252_are_read_outside_of_rows(save):
    path = save("old.xsb", "; Andr\u00e9 \u20ac\n".encode("cp1252") + SMALL_TEXT.encode())
    assert read(path)[0].title == "Andr\u00e9 \u20ac"


def slc(*levels, head='<?xml version="1.0" encoding="ISO-8859-1"?>\n'):
    body = "".join(
        f'<Level Id="{title}">\n' + "".join(f"<L>{row}</L>\n" for row in rows) + "</Level>\n" for title, rows in levels
    )
    return f"{head}<SokobanLevels><Title>T</Title><LevelCollection>\n{body}</LevelCollection></SokobanLevels>\n"


def test_slc_levels_are_read(save):
    text = slc(("Andr\u00e9", ("--5#  ", "  #@$.#", "  &#35;####")), ("", ("3#|#*#|3#|5#", "#@$.#", "5#")))
    first, second = read(save("levels.slc", text.encode("latin-1")))
    assert first == Level("Andr\u00e9", SMALL, 4)
    assert second == Level("", ("###  ", "#*#  ", "###  ", *SMALL), 9)


def test_slc_may_name_a_document_type_that_is_never_loaded(save):
    head = '<?xml version="1.0"?>\n<!DOCTYPE SokobanLevels SYSTEM "file:///nowhere/SokobanLev.dtd">\n'
    assert read(save("levels.txt", slc(("1", SMALL), head=head)))[0].rows == SMALL


# Sokoban: refusals


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", (1, 1), "empty file"),
        ("\n \n\t\n", (1, 1), "empty file"),
        ("\ufeff", (1, 1), "empty file"),
        ("hello\nworld", (1, 1), "no Sokoban level in this file"),
        ("; a\n  ####\n  #$.#\n  ####", (2, 3), "no worker (@ or +) in this level"),
        ("#####\n#@$.#\n#+$ #\n#####", (3, 2), "a second worker in this level"),
        (f"{SMALL_TEXT}\n#####\n#@$$.#\n#####", (5, 1), "boxes and docks differ in number: 2 and 1"),
        ("#####\n#+$.#\n#####", (1, 1), "boxes and docks differ in number: 1 and 2"),
        ("####\n#@ #\n####", (1, 1), "no boxes in this level"),
        ("#####\n#@$.\n#####", (2, 5), "open border: the worker can leave the level here"),
        ("#####\n#@$. \n###\n", (3, 4), "open border: the worker can leave the level here"),
        ("  ## ##\n  #@$.#\n  #####", (1, 5), "open border: the worker can leave the level here"),
        ("#@$.#", (1, 2), "open border: the worker can leave the level here"),
        ("*****\n*@$.*\n*****", (3, 2), "open border: the worker can leave the level here"),
        ("#####\n#@x$.#\n#####", (2, 3), "unknown character 'x'"),
        ("#####\n#@$.#  \u2603\n#####", (2, 8), "unknown character '\u2603'"),
        ("#####\n#Wall#\n#####", (2, 2), "unknown character 'W'"),
        ("#####\n#@\t$.#\n#####", (2, 3), "tab; align with spaces"),
        ("\t#####\n\t#@$.#\n\t#####", (1, 1), "tab; align with spaces"),
        ("5#|#@$.2|5#", (1, 8), "a run length without a cell"),
        ("5#|#@0$.#|5#", (1, 6), "a run of no cells"),
        ("999999999#\n#@$.#", (1, 1), f"a row has at most {MAX_SIDE} cells; this one has more"),
        (f"##{'9' * 60000}#\n#@$.#", (1, 3), f"a row has at most {MAX_SIDE} cells; this one has more"),
        ("#" * 1001 + "\n#@$.#", (1, 1001), f"a row has at most {MAX_SIDE} cells; this one has more"),
        ("#|" * 1001, (1, 2001), f"a level has at most {MAX_SIDE} rows; this one has more"),
        ("#|" * 999 + "\n#\n#\n#", (3, 1), f"a level has at most {MAX_SIDE} rows; this one has more"),
        ("#\n" * 1001, (1001, 1), f"a level has at most {MAX_SIDE} rows; this one has more"),
        ("5#|#2(@$.#|5#", (1, 5), "a group that is not closed in its row"),
        ("5#|#@$).#|5#", (1, 7), "unknown character ')'"),
        ("#" + "9(" * 4 + "#" + ")" * 4 + "\n#@$.#", (1, 2), f"a row has at most {MAX_SIDE} cells; this one has more"),
        ("9(" * 20000 + ")" * 20000 + "#\n#@$.#", (2, 2), "open border: the worker can leave the level here"),
        ("####\n#@\0$.#\n####", (2, 3), "null byte: not a text file in UTF-8"),
        ("; " + "x" * MAX_LINE, (1, MAX_LINE + 1), f"a line has at most {MAX_LINE} characters; this one has more"),
    ],
)
def test_a_malformed_level_is_refused_with_its_place(save, text, place, reason):
    path = save("bad.xsb", text)
    with pytest.raises(FormatError) as caught:
        read(path)
    assert str(caught.value) == f"{path}:{place[0]}:{place[1]}: {reason}"


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (b"#####\n#@\xe9$.#\n#####", (2, 3), "byte 0xE9 is not UTF-8; save the file as UTF-8"),
        (b"\xe2\x98\x83\xff\xfe nothing else", (1, 2), "byte 0xFF is not UTF-8; save the file as UTF-8"),
        (SMALL_TEXT.encode("utf-16"), (1, 4), "null byte: not a text file in UTF-8"),
    ],
)
def test_a_wrong_encoding_is_refused_with_its_place(save, content, place, reason):
    assert refusal(read, save("bad.txt", content)) == (*place, reason)


def test_a_line_of_100_megabytes_is_refused_in_little_memory(tmp_path):
    path = tmp_path / "long.xsb"
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(b"#" * (1 << 20))
    tracemalloc.start()
    place = refusal(read, path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert place == (1, MAX_LINE + 1, f"a line has at most {MAX_LINE} characters; this one has more")
    assert peak_bytes < 4 << 20


def test_a_file_of_endless_lines_is_refused(save):
    reason = f"a file has at most {MAX_FILE} bytes and {MAX_LINES} lines; this one has more"
    assert refusal(read, save("long.xsb", b"; comment\n" * (MAX_FILE // 10 + 1))) == (1, 1, reason)
    assert refusal(levels_from_text, "x" * 1023 + "\n" + ("x" * 1023 + "\n") * (MAX_FILE >> 10)) == (8193, 1, reason)
    assert refusal(read_map, save("long.map", MAP.encode() + b"\n" * MAX_LINES)) == (MAX_LINES + 1, 1, reason)


def test_run_lengths_cannot_expand_without_bound(save):
    hall = "1000#\n" + "#@$.996#\n" + "1000#\n" * 998 + "\n"
    line, column, reason = refusal(read, save("bomb.xsb", hall * 20))
    assert (line, column) == (MAX_CELLS // 10**6 * 1001 + 1, 1)
    assert reason == f"a file has at most {MAX_CELLS} cells in all levels; this one has more"


BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE x [\n<!ENTITY a "##########">\n'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">\n' for a, b in itertools.pairwise("abcdefghij"))
    + "]>\n"
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n'


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", (1, 1), "empty file"),
        ("<a/>", (1, 1), "no Sokoban level in this file"),
        ("<a>\n<b></a>", (2, 6), "not well-formed XML: mismatched tag"),
        ("<a>", (1, 4), "not well-formed XML: no element found"),
        (slc(("1", ("&j;",)), head=BOMB), (2, 13), "declarations in the document type are refused"),
        (slc(("1", ("&a;",)), head=EXTERNAL), (1, 13), "declarations in the document type are refused"),
        (
            slc(("1", ("&a;",)), head='<!DOCTYPE x SYSTEM "x.dtd">\n'),
            (4, 4),
            "entity 'a' is refused: only XML's own are read",
        ),
        (slc(("1", ())), (4, 1), "a level without rows"),
        ("<a>" * 20, (1, 49), "more than 16 elements within each other"),
        (slc(("1", ("", " "))), (6, 1), "a level without rows"),
        (slc(("1", ("#<b/>#",))), (4, 5), "<b> inside of a row"),
        (slc(("1", ("#</L><Level/><L>#",))), (4, 9), "<Level> inside of a level"),
        (slc(("1", ("#####", "#@$x.#", "#####"))), (5, 7), "unknown character 'x'"),
        (slc(("1", ("#####", "#@&#36;.", "#####"))), (5, 12), "open border: the worker can leave the level here"),
        (
            slc(("1", ("#" * (MAX_LINE + 1),))),
            (4, 4 + MAX_LINE),
            f"a row has at most {MAX_LINE} characters; this one has more",
        ),
        (slc(("1", ("#",) * 1001)), (1004, 5), f"a level has at most {MAX_SIDE} rows; this one has more"),
        (
            '<?xml version="1.0" encoding="nonsense"?><a/>',
            (1, 31),
            "not readable in its declared encoding: unknown encoding: nonsense",
        ),
    ],
)
def test_a_malformed_slc_file_is_refused_with_its_place(save, text, place, reason):
    assert refusal(read, save("bad.slc", text)) == (*place, reason)


def test_an_slc_file_of_any_size_is_refused_at_the_limit(save):
    path = save("big.slc", b"<a>" + b" " * MAX_FILE)
    assert refusal(read, path)[2] == f"a file has at most {MAX_FILE} bytes; this one has more"


@pytest.mark.parametrize("name", ["nothing.xsb", "nothing.slc", "nothing.scen", "nothing.map", "nothing", "null\0.txt"])
def test_a_missing_file_is_refused(tmp_path, name):
    line, column, reason = refusal(read, tmp_path / name)
    assert (line, column) == (0, 0)
    assert reason.startswith("cannot be read: ")


@pytest.mark.parametrize("suffix", [".xsb", ".slc", ".scen", ".map", ""])
def test_a_directory_is_refused(tmp_path, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    assert refusal(read, tmp_path / f"folder{suffix}") == (0, 0, "cannot be read: Is a directory")


def test_errors_survive_the_way_between_processes():
    error = pickle.loads(pickle.dumps(FormatError("a.xsb", 2, 3, "reason")))
    assert (str(error), error.path, error.line, error.column) == ("a.xsb:2:3: reason", "a.xsb", 2, 3)


# MovingAI


def test_the_arena_is_read():
    tasks = read(GOLDEN / "arena.map.scen")
    assert len(tasks) == 160
    assert (tasks[0].start, tasks[0].goal, tasks[0].line) == ((1, 11), (1, 12), 2)
    grid = tasks[0].map
    assert (grid.width, grid.height) == (49, 49)
    assert all(task.map is grid for task in tasks)
    record = tasks[-1].record()
    assert record.keys() == {"width", "height", "start", "goal", "walls"}
    assert record["walls"] == sorted(record["walls"], key=lambda wall: wall[0] + wall[1] * 49)
    letters = "".join((GOLDEN / "arena.map").read_text().splitlines()[4:])
    assert {x + y * 49 for x, y in record["walls"]} == {i for i, letter in enumerate(letters) if letter in "@OTW"}


@pytest.mark.parametrize("text", [MAP, MAP.replace("\n", "\r\n"), "\ufeff" + MAP.replace("\n", "  \n") + "\n\n"])
def test_a_map_is_read_with_its_start_and_goal(save, text):
    (task,) = read(save("small.map", text), start=(0, 0), goal=(2, 0))
    assert task.record() == {
        "width": 3,
        "height": 2,
        "start": [0, 0],
        "goal": [2, 0],
        "walls": [[0, 1], [1, 1], [2, 1]],
    }


def test_the_format_is_found_by_content_where_the_suffix_says_nothing(save):
    save("small.map", MAP)
    assert read(save("map.txt", MAP), start=(0, 0), goal=(1, 0))[0].goal == (1, 0)
    assert isinstance(read(save("scen.txt", scen("0\tsmall.map\t3\t2\t0\t0\t2\t0\t2")))[0], GridTask)


def test_a_map_alone_is_no_task(save):
    path = save("small.map", MAP)
    assert "give a start and a goal" in refusal(read, path)[2]
    with pytest.raises(FormatError, match=r"goal \(1, 1\) cannot be entered: it is 'T'"):
        read(path, start=(0, 0), goal=(1, 1))
    with pytest.raises(FormatError, match=r"start \(-1, 0\) is outside of the map, which is 3x2"):
        read(path, start=(-1, 0), goal=(1, 0))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", (1, 1), "empty file"),
        ("type octile\n", (2, 1), "the file ends in the header, before 'map'"),
        ("type octile\nheight 2\nmap\n", (3, 1), "the header does not give width"),
        ("type octile\ndepth 2\n", (2, 1), "expected 'type octile', 'height N' and 'width N', once each, then 'map'"),
        ("type octile\nheight 0\n", (2, 8), f"height is a number from 1 to {MAX_LINE}"),
        ("type octile\nwidth 99999\n", (2, 7), f"width is a number from 1 to {MAX_LINE}"),
        (
            MAP.replace("GS", "Gx"),
            (5, 3),
            "unknown character 'x': an octile map has . G S (free) and @ O T W (blocked) only",
        ),
        (MAP.replace("GS", "G"), (5, 3), "a row has 3 cells; this one has 2"),
        (MAP.replace("GS", "G.."), (5, 4), "a row has 3 cells; this one has 4"),
        (MAP.replace("@TW\n", ""), (6, 1), "the file ends after 1 of 2 rows"),
        (MAP + "\n...\n", (8, 1), "the map ends after 2 rows, but here is another"),
    ],
)
def test_a_malformed_map_is_refused_with_its_place(save, text, place, reason):
    assert refusal(read_map, save("bad.map", text)) == (*place, reason)


def scen(*lines):
    return "\n".join(["version 1", *lines, ""])


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", (1, 1), "empty file"),
        ("version 2\n", (1, 1), "expected 'version 1'"),
        ("version 1.0\n\n", (3, 1), "no scenario in this file"),
        (scen("0 small.map 3 2 0 0 2 0"), (2, 24), "a scenario has 9 fields"),
        (scen("0\tsmall.map\t3\t2\t0\t0\tx\t0\t2"), (2, 21), "expected a number for goal x, found 'x'"),
        (scen("0\tsmall.map\t3\t2\t0\t0\t2\t0\tinf"), (2, 25), "expected a number for optimal length, found 'inf'"),
        (
            scen("0\tdir/none.map\t3\t2\t0\t0\t2\t0\t2"),
            (2, 3),
            "the map 'dir/none.map' is not beside this file; put it there",
        ),
        (scen("0\t..\t3\t2\t0\t0\t2\t0\t2"), (2, 3), "the map '..' is not beside this file; put it there"),
        (scen(f"0\t{'n' * 300}\t3\t2\t0\t0\t2\t0\t2"), (2, 3), f"the map '{'n' * 80}' is not beside this file"),
        (scen("", "0\tsmall.map\t6\t4\t0\t0\t2\t0\t2"), (3, 13), "the map is 3x2, not 6x4; scaled maps are not read"),
        (scen("0\tsmall.map\t3\t2\t0\t2\t2\t0\t2"), (2, 17), "start (0, 2) is outside of the map, which is 3x2"),
        (scen("0\tsmall.map\t3\t2\t0\t0\t2\t1\t2"), (2, 21), "goal (2, 1) cannot be entered: it is 'W'"),
    ],
)
def test_a_malformed_scenario_is_refused_with_its_place(save, text, place, reason):
    save("small.map", MAP)
    line, column, found = refusal(read_scenarios, save("bad.scen", text))
    assert (line, column) == place
    assert found.startswith(reason)


def test_a_malformed_map_is_named_when_a_scenario_needs_it(save):
    broken = save("broken.map", MAP.replace("octile", "octile x"))
    with pytest.raises(FormatError) as caught:
        read(save("a.scen", scen("0\tC:\\maps\\broken.map\t3\t2\t0\t0\t2\t0\t2")))
    assert (caught.value.path, caught.value.line) == (str(broken), 1)


# Properties


@st.composite
def levels(draw):
    """A random level: a room with walls in it, one worker, some boxes and docks, and floor around it."""
    width, height = draw(st.integers(1, 9)), draw(st.integers(2, 6))
    cells = draw(st.lists(st.sampled_from("    #*"), min_size=width * height, max_size=width * height))
    order = draw(st.permutations(range(width * height)))
    pairs = draw(st.integers(0, (width * height - 1) // 2))
    cells[order[0]] = draw(st.sampled_from("@+"))
    for at in order[1 : pairs + 1]:
        cells[at] = "$"
    for at in order[pairs + 1 : 2 * pairs + 1]:
        cells[at] = "."
    if cells[order[0]] == "+" and pairs:
        cells[order[2 * pairs]] = " "
    elif cells[order[0]] == "+":
        cells[order[0]] = "@"
    if not {"$", "*"} & set(cells):
        cells[order[1]] = "*"
    inner = ["".join(cells[y * width : (y + 1) * width]) for y in range(height)]
    rows = ["#" * (width + 2), *(f"#{row}#" for row in inner), "#" * (width + 2)]
    annex = draw(st.sampled_from([[], [" ", "###", "# #", "###"], [" ", " ", "*"]]))
    rows += [row.ljust(width + 2) for row in annex]
    title = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    return Level(" ".join(title.replace("\0", "").split()), tuple(rows), 1)


def seen(records):
    return [(level.title, level.rows) for level in records]


@given(st.lists(levels(), min_size=1, max_size=4))
@settings(deadline=None)
def test_random_levels_round_trip_through_xsb(tmp_path_factory, originals):
    path = tmp_path_factory.mktemp("xsb") / "levels.xsb"
    write_xsb(originals, path)
    assert seen(read(path)) == seen(originals)


def run_length_coded(row, floor):
    groups = [(cell, len(list(group))) for cell, group in itertools.groupby(row.rstrip())]
    return "".join(f"{length if length > 1 else ''}{cell}" for cell, length in groups).replace(" ", floor)


@given(levels(), st.sampled_from("-_"), st.sampled_from("|\n"))
@settings(deadline=None)
def test_run_length_coded_levels_are_the_same_levels(level, floor, separator):
    rows = [run_length_coded(row, floor) or floor for row in level.rows]
    assert [found.rows for found in levels_from_text(separator.join(rows))] == [level.rows]


@given(levels())
@settings(deadline=None)
def test_random_levels_are_the_same_in_slc(tmp_path_factory, level):
    path = tmp_path_factory.mktemp("slc") / "level.slc"
    path.write_text(slc(("1", level.rows)))
    assert read(path)[0].rows == level.rows


LIKELY = st.text(st.sampled_from("####@@$$**.+ -_|\n\n\n0129;:tTitle\t\r\0\ufeff"), max_size=300).map(str.encode)
LIKELY_XML = st.lists(
    st.sampled_from(
        ["<Level>", "</Level>", "<L>", "</L>", "<L>###</L>", "<L>#@$.#</L>", "&amp;", "&x;", "\n", "<!DOCTYPE a>"]
    )
).map(lambda parts: "".join(["<a>", *parts, "</a>"]).encode())
LIKELY_MAP = st.lists(
    st.sampled_from(
        ["type octile\n", "height 2\n", "width 2\n", "map\n", "..\n", "@T\n", "version 1\n", "0\tx.map\t2\t2", "\t1"]
    )
).map(lambda parts: "".join(parts).encode())


@given(
    st.one_of(st.binary(max_size=300), LIKELY, LIKELY_XML, LIKELY_MAP),
    st.sampled_from(["xsb", "txt", "slc", "map", "scen"]),
)
@settings(deadline=None, max_examples=600)
def test_any_bytes_are_read_or_refused_and_nothing_else(tmp_path_factory, content, suffix):
    path = tmp_path_factory.getbasetemp() / f"fuzz.{suffix}"
    path.write_bytes(content)
    try:
        records = read(path, start=(0, 0), goal=(0, 1))
    except FormatError:
        return
    assert all(record.record() for record in records)
    assert records
