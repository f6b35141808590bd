"""mongodump archives: real ones, our own, whole and damaged; the compiled reader against pymongo's."""

import gzip
import io
import json
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import bson
import numpy as np
import pytest
from command import invoke
from hypothesis import given, settings
from hypothesis import strategies as st

from searchformer.dataset.store import PARTS, Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.interop import kernels
from searchformer.interop.mongodump import Archive, ArchiveWriter, import_archive, list_archive
from searchformer.interop.sequences import SequenceParser, TokenRows, _maze_problems, task_ids
from searchformer.tokens.vocabulary import Vocabulary

GOLDEN = Path(__file__).parent / "golden"
PUBLISHED = GOLDEN / "tokenSeqDB-maze10.archive.gz"
NAME = "maze.10-by-10-deterministic.simple"
SMALL = "maze.3-by-3-deterministic.simple"
DOCUMENT = {
    "_id": bson.Int64(-5),
    "prompt": ["start", "0", "2", "goal", "2", "1", "wall", "2", "0", "wall", "0", "1", "wall", "1", "1"],
    "reasoning": ["create", "0", "2", "c0", "c3", "close", "0", "2", "c0", "c3"],
    "plan": ["plan", "0", "2", "plan", "1", "2", "plan", "2", "2", "plan", "2", "1"],
}
TOKENS = make_domain("maze", {"width": 3, "height": 3}).token_list()
VOCABULARY = Vocabulary.of(TOKENS)


def archive_bytes(parts, *, names=None, ends=True) -> bytes:
    """An archive of (collection, documents) parts."""
    stream = io.BytesIO()
    names = names or list(dict.fromkeys(name for name, _ in parts))
    writer = ArchiveWriter(stream, names)
    for name, documents in parts:
        writer.add(name, b"".join(map(bson.encode, documents)))
    for name in names if ends else ():
        writer.end(name)
    return stream.getvalue()


def small_archive(document=DOCUMENT, tokens=TOKENS, name=SMALL, **how) -> bytes:
    vocabulary = {"_id": name, "vocabulary": tokens}
    return archive_bytes([(f"{name}.seq.train", [document]), ("vocabulary", [vocabulary])], **how)


def refusal(path: Path, **how) -> str:
    out = path.parent / "out"
    with pytest.raises(SearchformerError) as caught:
        import_archive(path, out, **how)
    assert not out.exists()
    assert list(path.parent.glob(".*.tmp")) == []
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


# --- what is published


def published_documents() -> dict[str, list[dict]]:
    """The golden archive by collection, read in the most obvious way."""
    raw, at, found = gzip.decompress(PUBLISHED.read_bytes()), 4, {}
    name, prelude = None, True
    while at < len(raw):
        (length,) = struct.unpack_from("<i", raw, at)
        if length == -1:
            at, name, prelude = at + 4, None, False
            continue
        document, at = bson.decode(raw[at : at + length]), at + length
        if prelude:
            continue
        if name is None:
            name = document["collection"]
        else:
            found.setdefault(name, []).append(document)
    return found


def test_a_published_archive_becomes_a_data_set_with_its_split_tokens_and_ids(tmp_path):
    import_archive(PUBLISHED, tmp_path / "out")
    data, expected = Dataset(tmp_path / "out", verify=True), published_documents()
    assert data.manifest.domain == "maze"
    assert data.manifest.config["deterministic"] is True
    assert data.vocabulary == Vocabulary.of(expected["vocabulary"][0]["vocabulary"])
    for split in ("train", "test"):
        rows = list(data.records(split))
        documents = expected[f"{NAME}.seq.{split}"]
        assert [row["published_id"] for row in rows] == [document["_id"] for document in documents]
        for row, document in zip(rows, documents, strict=True):
            for part, field in (("prompt", "prompt"), ("trace", "reasoning"), ("plan", "plan")):
                assert data.vocabulary.decode(row[part]) == document[field]
                assert row[f"{part}_length"] == len(document[field])


def test_the_rest_of_the_program_takes_the_data_set_as_its_own(tmp_path):
    out = tmp_path / "out"
    result = invoke("import", "mongodump", PUBLISHED, "--out", out)
    assert (result.exception, result.stdout) == (None, f"{out}: 14 training and 6 test tasks\n")
    found = json.loads(invoke("inspect", out, "--json").stdout)
    assert found["leakage"]["wrong_ids"] == 0
    assert found["counts"] == {"train": 14, "test": 6}


@pytest.mark.parametrize(
    ("file", "documents"),
    [
        ("mongodump-test.bar.archive", {"test.bar": 1, "admin.system.version": 1}),
        ("mongodump-dump-w-oplog.archive", {"test.foo": 25, ".oplog": 18, "admin.system.version": 1}),
    ],
)
def test_archives_of_mongodbs_own_tools_are_listed_with_their_checksums_right(file, documents):
    assert {each.name: each.documents for each in list_archive(GOLDEN / file)} == documents
    with pytest.raises(SearchformerError, match=r"no data set of tokens here: expected a collection NAME\.seq\.train"):
        import_archive(GOLDEN / file, Path("nowhere"))


def test_the_list_names_the_data_sets(tmp_path):
    output = invoke("import", "mongodump", PUBLISHED, "--list").stdout
    assert f"tokenSeqDB.{NAME}.seq.train: 14 documents, 54,927 bytes" in output
    assert output.endswith(f"every checksum is right; data sets: {NAME}\n")


def test_one_of_several_data_sets_is_chosen_by_name(tmp_path):
    other = "maze.3-by-3-nondeterministic.simple"
    parts = [(f"{name}.seq.train", [DOCUMENT]) for name in (SMALL, other)]
    parts.append(("vocabulary", [{"_id": name, "vocabulary": TOKENS} for name in (SMALL, other)]))
    path = tmp_path / "two.archive"
    path.write_bytes(archive_bytes(parts))
    assert refusal(path) == f"which data set? --name chooses; there are: {SMALL}, {other}"
    assert refusal(path, name="x") == f"no data set 'x' here; there are: {SMALL}, {other}"
    manifest = import_archive(path, tmp_path / "data", name=other)
    assert manifest.config["deterministic"] is False
    assert manifest.counts["train"] == 1


def test_an_archive_may_have_other_tokens_than_its_name_promises(tmp_path):
    path = tmp_path / "more.archive"
    path.write_bytes(small_archive(tokens=[*TOKENS, "something-long", "eos"]))
    import_archive(path, tmp_path / "data")
    assert "something-long" in Dataset(tmp_path / "data").vocabulary.ids


def test_sokoban_is_read_with_its_40000_costs(tmp_path, golden):
    name = "sokoban.7-by-7-walls-2-boxes-2.with-box-40k"
    example = next(record for record in golden("sokoban.jsonl.gz") if "example_trace" in record)
    prompt, trace, plan = (example[key].split() for key in ("prompt", "example_trace", "example_plan"))
    tokens = [
        *map(str, range(7)),
        *(f"c{n}" for n in range(40000)),
        *["box", "worker", "dock", "wall", "create", "close", "plan"],
    ]
    document = {"_id": bson.Int64(1), "prompt": prompt, "reasoning": trace, "plan": plan}
    path = tmp_path / "s.archive"
    path.write_bytes(small_archive(document, tokens, name))
    import_archive(path, tmp_path / "data")
    data = Dataset(tmp_path / "data")
    assert data.manifest.settings["max_cost"] == 39999
    assert data.vocabulary.decode(next(data.records("train"))["prompt"]) == prompt


# --- what is wrong


def test_an_archive_that_is_cut_is_refused_wherever_it_is_cut(tmp_path):
    whole, path = small_archive(), tmp_path / "cut.archive"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert refusal(path).startswith("byte ")
    path.write_bytes(gzip.compress(whole)[:-9])
    assert "of the unpacked archive: the gzip file is cut or damaged" in refusal(path)


def test_a_gzip_file_that_is_cut_says_how_much_of_it_was_good(tmp_path):
    packed, path = PUBLISHED.read_bytes(), tmp_path / "cut.archive.gz"
    for length in (3000, 9000, len(packed) - 1):
        path.write_bytes(packed[:length])
        good = len(zlib.decompressobj(wbits=31).decompress(packed[:length]))
        assert refusal(path).startswith(f"byte {good:,} of the unpacked archive: the gzip file is cut")


def test_one_changed_byte_in_a_document_is_found(tmp_path):
    whole, path = small_archive(), tmp_path / "bad.archive"
    for at in range(whole.index(b"start"), whole.index(b"wall\0")):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert refusal(path).startswith("byte ")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "byte 0: not a mongodump archive: expected 6de29981, found ''"),
        (b"PK\x03\x04 something", "byte 0: not a mongodump archive: expected 6de29981, found '504b0304'"),
        (b"\x6d\xe2\x99\x81\xff\xff\xff\x7f", "byte 4: expected a document; found the length 2147483647"),
        (b"\x6d\xe2\x99\x81\x05\0\0\0\0" + bson.encode({"a": 1}), "byte 9: expected a document that names a coll"),
        (b"\x1f\x8bnonsense", "byte 0 of the unpacked archive: the gzip file is cut or damaged"),
    ],
)
def test_what_is_no_archive_is_refused_with_its_place(tmp_path, raw, reason):
    path = tmp_path / "x.archive"
    path.write_bytes(raw)
    assert refusal(path).startswith(reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"_id": "x"}, "expected _id, a whole number of 64 bits; found 'x'"),
        ({"plan": "plan 0 2"}, "document -5: expected plan, a list of tokens; found 'plan 0 2'"),
        ({"plan": [bson.Code("plan")]}, "document -5: expected plan, a list of tokens; found [Code('plan', None)]"),
        ({"plan": [1]}, "document -5: expected plan, a list of tokens; found [1]"),
        ({"reasoning": ["banana"]}, "document -5: reasoning: token 0 is 'banana', which the vocabulary does not have"),
        ({"prompt": ["start", "0"]}, "document -5: its prompt is not a task of maze: token 2: expected a number"),
        (
            {"prompt": ["start", "0", "2", "goal", "2", "1", "wall", "0", "2"]},
            "not a task of maze: start [0, 2] is a wall",
        ),
    ],
)
def test_a_document_of_another_kind_is_named(tmp_path, changes, reason):
    path = tmp_path / "x.archive"
    path.write_bytes(small_archive(DOCUMENT | changes))
    assert reason in refusal(path)
    assert "byte " in refusal(path)


def test_other_mistakes_of_an_archive(tmp_path):
    path = tmp_path / "x.archive"
    path.write_bytes(small_archive(tokens=[*TOKENS[1:], bson.Code(TOKENS[0])]))  # a text, but no token
    assert "expected a vocabulary: a list of tokens" in refusal(path)
    path.write_bytes(archive_bytes([(f"{SMALL}.seq.train", [DOCUMENT])]))
    assert "has no vocabulary for" in refusal(path)
    path.write_bytes(small_archive(ends=False))
    assert "ends in the middle of the collection" in refusal(path)
    path.write_bytes(small_archive(name="mazes.of-mine"))
    assert "say it with --domain" in refusal(path)
    assert import_archive(path, tmp_path / "o", domain=make_domain("maze", {"width": 3, "height": 3})).counts["train"]
    assert "cannot read" in refusal(tmp_path / "missing")


# --- fast and slow


@given(st.binary(max_size=100), st.binary(max_size=100))
@settings(max_examples=200, deadline=None)
def test_the_fast_crc_is_the_slow_one(first, second):
    crc = 0
    for part in (first, second):
        crc = kernels.crc64(np.frombuffer(part, dtype=np.uint8), 0, len(part), crc)
    assert crc == kernels.crc64_by_bytes(first + second)


def test_the_crc_is_the_one_that_everyone_calls_crc64_xz():
    assert kernels.crc64_by_bytes(b"123456789") == 0x995DC9BBDF1939FA


def rows_equal(first: TokenRows, second: TokenRows) -> bool:
    same = np.array_equal(first.published_ids, second.published_ids)
    return same and all(
        np.array_equal(first.parts[part], second.parts[part]) and np.array_equal(first.ends[part], second.ends[part])
        for part in PARTS
    )


def test_the_compiled_parser_takes_what_pymongo_takes_and_nothing_else():
    """Documents changed at random: where the kernel takes one, pymongo reads the same; else it is left to pymongo."""
    generator, parser, taken = random.Random(3), SequenceParser(VOCABULARY), 0
    for _ in range(3000):
        fields = [field for field in DOCUMENT.items() if generator.random() < 0.97]
        generator.shuffle(fields)
        document = bytearray(bson.encode(dict(fields)))
        for _ in range(generator.choice([0, 0, 1, 2])):
            document[generator.randrange(4, len(document))] = generator.choice([0, 1, 2, 4, 48, 99, 255])
        array = np.frombuffer(bytes(document), dtype=np.uint8)
        rows, stopped = parser.parse(array, 0, len(array))
        if stopped:
            taken += 1
            assert stopped == len(array)
            assert rows_equal(rows, parser.parse_document(bytes(document)))
    assert 500 < taken < 2500


def test_the_compiled_parser_does_the_whole_layout():
    parser = SequenceParser(VOCABULARY)
    documents = [DOCUMENT | {"_id": bson.Int64(n)} for n in range(50)]
    data = np.frombuffer(b"".join(map(bson.encode, documents)), dtype=np.uint8)
    rows, stopped = parser.parse(data, 0, len(data))
    assert (len(rows), stopped) == (50, len(data))
    slow = [parser.from_record(document) for document in documents]
    assert all(np.array_equal(rows.row(part, n), slow[n].row(part, 0)) for n in range(50) for part in PARTS)


def test_mazes_of_many_prompts_are_those_of_the_parser(draw_problems):
    """Correct prompts and prompts with a token changed: the same problem, or left to the parser."""
    generator, domain = random.Random(5), make_domain("maze", {"width": 5, "height": 4})
    vocabulary = Vocabulary.of(domain.token_list())
    prompts = []
    for problem in draw_problems(domain, 200):
        tokens = np.zeros(domain.prompt_room(problem), dtype=np.int32)
        count = domain.rules.write_prompt(problem, tokens)
        prompt = [domain.token_text(code) for code in tokens[:count].tolist()]
        if generator.random() < 0.5:
            prompt[generator.randrange(len(prompt))] = generator.choice(vocabulary.tokens)
        prompts.append(prompt[: generator.choice([len(prompt), len(prompt), 5, 0])])
    rows = {part: [vocabulary.encode(prompt) for prompt in prompts] for part in PARTS}
    found = _maze_problems(domain, vocabulary, TokenRows.of(range(len(prompts)), rows, vocabulary.dtype))
    for prompt, problem in zip(prompts, found, strict=True):
        try:
            expected = domain.parse_prompt(prompt)
        except SearchformerError:
            expected = None
        assert (problem is None) == (expected is None)
        assert problem is None or np.array_equal(problem, expected)
    assert 50 < sum(problem is not None for problem in found) < 150


def test_task_ids_are_the_domains(draw_problems):
    domain = make_domain("sokoban", {"width": 6, "height": 6, "boxes": 1})
    vocabulary, problems = Vocabulary.of(domain.token_list()), list(draw_problems(domain, 5))
    prompts = []
    for problem in problems:
        tokens = np.zeros(domain.prompt_room(problem), dtype=np.int32)
        count = domain.rules.write_prompt(problem, tokens)
        prompts.append(vocabulary.encode([domain.token_text(code) for code in tokens[:count].tolist()]))
    rows = TokenRows.of(range(5), dict.fromkeys(PARTS, prompts), vocabulary.dtype)
    assert task_ids(domain, vocabulary, rows) == [domain.task_id(problem) for problem in problems]


def test_memory_does_not_grow_with_the_archive(tmp_path):
    """1 GB and more, whose peak is that of 64 MB."""
    code = """
import resource, sys, bson
from pathlib import Path
from test_interop_mongodump import DOCUMENT, SMALL, TOKENS
from searchformer.interop.mongodump import ArchiveWriter, import_archive
place, names = Path(sys.argv[1]), [f"{SMALL}.seq.train", f"{SMALL}.seq.test", "vocabulary"]
long = DOCUMENT | {"reasoning": DOCUMENT["reasoning"] * 500}
part = bson.encode(long) * 20
for size in (64 << 20, 1 << 30):
    path, written = place / "big.archive", 0
    with open(path, "wb") as stream:
        writer = ArchiveWriter(stream, names)
        while written < size:
            writer.add(names[written // len(part) % 2], part)
            written += len(part)
        writer.add("vocabulary", bson.encode({"_id": SMALL, "vocabulary": TOKENS}))
        for name in names:
            writer.end(name)
    manifest = import_archive(path, place / f"out{size}")
    print(path.stat().st_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert done.returncode == 0, done.stderr
    (_, small_peak), (large, large_peak) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert large > 1 << 30
    assert large_peak < small_peak + 64


def test_an_archive_is_closed_when_it_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(SearchformerError), Archive(tmp_path / "x"):
        pass  # an open file would be a ResourceWarning, which is an error here
