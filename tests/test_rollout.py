"""The engine gives the answers of the obvious sampler, on both backends, whatever the batch, the slots or the cache."""

import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from searchformer.errors import SearchformerError
from searchformer.model import ModelConfig, Transformer, make_config
from searchformer.model.device import check_precision, widest_float
from searchformer.rollout import Answer, Engine, Prompt, Sampling, cpu, device, kernels, memory, sample_naively
from searchformer.rollout.cpu import CpuBackend
from searchformer.rollout.device import DeviceBackend, draw, uniforms
from searchformer.rollout.engine import choose_precision
from searchformer.rollout.naive import choose
from searchformer.rollout.requests import noise_key, uniform
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.vocabulary import EOS, UnknownTokenError, Vocabulary
from searchformer.train.precision import choose_precision as train_precision

GOLDEN = np.load(Path(__file__).parent / "golden/meta-model-s-maze10.npz")
VOCABULARY = Vocabulary.of(f"t{i:02d}" for i in range(22))
BACKENDS = {
    "cpu": lambda model: CpuBackend(model, precision="fp32", threads=1),
    "cpu-2-threads": lambda model: CpuBackend(model, precision="fp32", threads=2),
    "device": lambda model: DeviceBackend(model, precision="fp32", steps=5),
}


@pytest.fixture(scope="module")
def model() -> Transformer:
    """A small random network whose answers have some twenty tokens."""
    config = ModelConfig(vocabulary=len(VOCABULARY), dim=24, layers=2, heads=2, ffn=40, positions=400)
    return Transformer(config, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """Prompts on both sides of a block's border."""
    generator = np.random.default_rng(0)
    return [Prompt(f"task-{n}", generator.integers(2, len(VOCABULARY), n)) for n in (1, 7, 62, 63, 90)]


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest, model: Transformer) -> Engine:
    return Engine(model, VOCABULARY, backend=BACKENDS[request.param](model), slots=7)


def without_eos() -> Automaton:
    """Every token but eos, for answers of a given length."""
    next_state = np.zeros((1, len(VOCABULARY)), np.int32)
    next_state[0, EOS] = -1
    return Automaton(start=0, next_state=next_state, expects=("anything but the end",))


def assert_same(found: list[Answer], expected: list[Answer]) -> None:
    assert [(a.task_id, a.sample, a.finish, a.tokens.tolist()) for a in found] == [
        (a.task_id, a.sample, a.finish, a.tokens.tolist()) for a in expected
    ]
    np.testing.assert_allclose(
        [a.log_probability for a in found], [a.log_probability for a in expected], rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0),
        Sampling(),
        Sampling(temperature=0.6, top_k=5),
        Sampling(1.3, 0, 0.7),
        Sampling(1, 9, 0.5),
    ],
    ids=str,
)
def test_the_engine_gives_the_answers_of_the_obvious_sampler(
    engine: Engine, model: Transformer, prompts: list[Prompt], sampling: Sampling
) -> None:
    expected = [
        sample_naively(model, prompt, sample=sample, seed=3, sampling=sampling, max_tokens=30)
        for prompt in prompts
        for sample in range(3)
    ]
    found = engine.sample_all(
        prompts,
        samples=3,
        seed=3,
        max_tokens=30,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    assert_same(found, expected)


def test_answers_longer_than_a_block_stay_those_of_the_obvious_sampler(
    engine: Engine, model: Transformer, prompts: list[Prompt]
) -> None:
    settings = {"max_tokens": 140, "automaton": without_eos()}
    expected = [sample_naively(model, prompts[2], sample=sample, **settings) for sample in range(2)]
    assert_same(engine.sample_all([prompts[2]], samples=2, **settings), expected)
    assert {len(answer.tokens) for answer in expected} == {140}


def test_greedy_answers_are_those_of_the_published_network() -> None:
    vocabulary = Vocabulary(tuple(map(str, GOLDEN["vocabulary"])))
    model = Transformer(make_config("15M", vocabulary=len(vocabulary)))
    model.load_state_dict({name: golden_weight(name, tensor.shape) for name, tensor in model.state_dict().items()})
    engine = Engine(model, vocabulary, precision="fp32")
    answers = engine.sample_all(
        [GOLDEN[f"prompt_{i}"][1:-1] for i in range(4)], samples=1, temperature=0, max_tokens=119
    )
    for i, answer in enumerate(answers):
        assert answer.tokens.tolist() == GOLDEN[f"greedy_{i}"][1:].tolist()


def golden_weight(name: str, shape: torch.Size) -> torch.Tensor:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    weight = generator.standard_normal(tuple(shape)).astype(np.float32) * np.float32(0.08)
    return torch.from_numpy(weight + np.float32("norm" in name or name.endswith("output.0.weight")))


def test_an_answer_does_not_depend_on_slots_or_on_the_other_prompts(model: Transformer, prompts: list[Prompt]) -> None:
    def answers(slots: int, tasks: list[Prompt]) -> dict[tuple[str, int], list[int]]:
        engine = Engine(model, VOCABULARY, precision="fp32", slots=slots)
        return {(a.task_id, a.sample): a.tokens.tolist() for a in engine.sample(tasks, samples=4, max_tokens=60)}

    together = answers(64, prompts)
    assert answers(1, prompts[::-1]) == together
    assert answers(3, prompts[1:2]) == {key: tokens for key, tokens in together.items() if key[0] == "task-7"}


def test_a_cache_too_small_for_all_makes_sequences_wait_and_changes_no_answer(
    model: Transformer, prompts: list[Prompt]
) -> None:
    backend = CpuBackend(model, precision="fp32", threads=1)
    settings = {"samples": 6, "max_tokens": 200, "automaton": without_eos()}
    roomy = Engine(model, VOCABULARY, backend=backend, slots=8).sample_all(prompts[:3], **settings)
    blocks = 7  # one sequence takes 4 and its prompt 1
    tight = Engine(model, VOCABULARY, backend=backend, slots=8, cache_gb=(blocks + 0.5) * backend.block_bytes / 1e9)
    assert tight.blocks == blocks
    assert_same(tight.sample_all(prompts[:3], **settings), roomy)


def test_a_cache_for_one_sequence_is_enough_for_many_prompts(model: Transformer) -> None:
    prompts = [Prompt(f"task-{n}", np.full(150, 2 + n)) for n in range(3)]
    backend = CpuBackend(model, precision="fp32", threads=1)
    blocks = 4  # a prompt takes 3 and its sequence 1
    tight = Engine(model, VOCABULARY, backend=backend, slots=8, cache_gb=(blocks + 0.5) * backend.block_bytes / 1e9)
    assert tight.blocks == blocks
    expected = [sample_naively(model, prompt, sample=s, max_tokens=40) for prompt in prompts for s in range(2)]
    assert_same(tight.sample_all(prompts, samples=2, max_tokens=40), expected)


def test_each_prompt_is_encoded_once_for_all_its_samples(model: Transformer, prompts: list[Prompt]) -> None:
    encoded = []

    class Counting(CpuBackend):
        def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
            encoded.append(len(prompt) - 2)
            super().encode(prompt, blocks)

    engine = Engine(model, VOCABULARY, backend=Counting(model, precision="fp32"), slots=3)
    engine.sample_all(prompts, samples=5, max_tokens=20)
    assert encoded == [len(prompt.tokens) for prompt in prompts]


def test_answers_come_as_they_finish_and_prompts_are_read_as_they_are_needed(
    model: Transformer, prompts: list[Prompt]
) -> None:
    read = []

    def source() -> Iterator[Prompt]:
        for prompt in prompts:
            read.append(prompt.task_id)
            yield prompt

    limits = np.full((len(prompts), 2), 40)
    limits[0] = [40, 2]
    engine = Engine(model, VOCABULARY, precision="fp32", slots=2)
    answers = engine.sample(source(), samples=2, max_tokens=limits, automaton=without_eos())
    first = next(answers)
    assert (first.prompt, first.sample, len(first.tokens), first.finish) == (0, 1, 2, "max_tokens")
    assert len(read) == 1
    assert len(list(answers)) == 2 * len(prompts) - 1


def test_a_forced_prefix_begins_every_answer_and_costs_no_probability(
    engine: Engine, model: Transformer, prompts: list[Prompt]
) -> None:
    prefix = [5, 9, 5]
    expected = [sample_naively(model, prompts[1], sample=s, max_tokens=25, prefix=prefix) for s in range(4)]
    found = engine.sample_all([prompts[1]], samples=4, max_tokens=25, prefix=["t03", "t07", "t03"])
    assert_same(found, expected)
    assert all(answer.tokens[:3].tolist() == prefix for answer in found)


def test_a_prefix_longer_than_the_limit_is_cut(engine: Engine, prompts: list[Prompt]) -> None:
    (answer,) = engine.sample_all([prompts[0]], samples=1, max_tokens=2, prefix=[5, 9, 5])
    assert (answer.tokens.tolist(), answer.finish, answer.log_probability) == ([5, 9], "max_tokens", 0.0)


def test_an_automaton_allows_only_its_tokens(engine: Engine, model: Transformer, prompts: list[Prompt]) -> None:
    next_state = np.full((3, len(VOCABULARY)), -1, np.int32)
    next_state[0, [4, 5, 6]] = 1
    next_state[1, [7, 8]] = 0
    next_state[0, EOS] = 2
    automaton = Automaton(start=0, next_state=next_state, expects=("4, 5, 6 or the end", "7 or 8", "nothing"))
    expected = [sample_naively(model, prompts[0], sample=s, max_tokens=30, automaton=automaton) for s in range(6)]
    found = engine.sample_all([prompts[0]], samples=6, max_tokens=30, automaton=automaton)
    assert_same(found, expected)
    for answer in found:
        assert set(answer.tokens[::2]) <= {4, 5, 6}
        assert set(answer.tokens[1::2]) <= {7, 8}
        assert answer.finish == "max_tokens" or len(answer.tokens) % 2 == 0


@pytest.mark.parametrize(("precision", "native"), [("bf16", False), ("bf16", True), ("int8", False)])
def test_narrow_caches_keep_probabilities_close(
    model: Transformer, prompts: list[Prompt], precision: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "has_bf16", lambda device: native)
    prefix = np.random.default_rng(2).integers(2, len(VOCABULARY), 100).tolist()
    narrow, exact = (
        Engine(model, VOCABULARY, precision=kind).sample_all(
            prompts, samples=1, temperature=0, max_tokens=101, prefix=prefix
        )
        for kind in (precision, "fp32")
    )
    for one, other in zip(narrow, exact, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=0.05)


def test_bf16_on_the_device_backend_stays_close(model: Transformer, prompts: list[Prompt]) -> None:
    kinds = (DeviceBackend(model, precision=precision) for precision in ("fp32", "bf16"))
    wide, narrow = (
        Engine(model, VOCABULARY, backend=kind).sample_all(prompts, samples=1, temperature=0, max_tokens=4)
        for kind in kinds
    )
    for one, other in zip(wide, narrow, strict=True):
        if one.tokens.tolist() == other.tokens.tolist():
            assert one.log_probability == pytest.approx(other.log_probability, abs=0.2)
    assert sum(one.tokens.tolist() == other.tokens.tolist() for one, other in zip(wide, narrow, strict=True)) >= 3


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.uint32, 1e-2), (np.int8, 2e-2)])
def test_the_attention_kernel_is_attention(dtype: type, tolerance: float) -> None:
    generator = np.random.default_rng(0)
    heads, width, length, share = 2, 12, 150, 2 if dtype == np.uint32 else 1
    keys_SD, values_SD = generator.standard_normal((2, length, heads * width)).astype(np.float32)
    query_1D = generator.standard_normal((1, heads * width)).astype(np.float32)
    keys = np.empty((4, 1, heads, width // share, 64), dtype)
    values = np.full_like(keys, np.nan if dtype == np.float32 else 127 if dtype == np.int8 else 0xFFFFFFFF, dtype)
    scales = np.empty((4, 1, heads, 2, 64 if dtype == np.int8 else 0), np.float32)
    table, out = np.array([[3, 0, 2]], np.int32), np.empty_like(query_1D)
    kernels.store_prompt(keys_SD, values_SD, keys, values, scales, 0, table[0])
    kernels.attend(
        query_1D, keys, values, scales, 0, table, np.array([length], np.int32), True, np.empty(192, np.float32), out
    )
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = keys_SD[:, part].astype(float) @ query_1D[0, part] / np.sqrt(width)
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(out[0, part], weights @ values_SD[:, part] / weights.sum(), atol=tolerance)


def test_all_three_samplers_use_the_same_noise() -> None:
    keys = [noise_key(0, "a", 0), noise_key(0, "a", 1), noise_key(2**40, "b", 63)]
    for position in (0, 1, 5000):
        expected = [uniform(key, position) for key in keys]
        assert uniforms(np.array(keys, np.uint64), np.full(3, position, np.int32), 1)[:, 0].tolist() == expected
        assert [kernels._uniform(np.uint64(key), position) for key in keys] == expected
    numbers = [uniform(noise_key(0, "t", sample), 0) for sample in range(2000)]
    assert abs(np.mean(numbers) - 0.5) < 0.03
    assert len(set(numbers)) == 2000


def test_tokens_are_drawn_with_their_probability() -> None:
    logits, allowed = np.log([0.1, 0.2, 0.3, 0.4]), np.ones(4, bool)
    numbers = (np.arange(1000) + 0.5) / 1000

    def shares(sampling: Sampling, allowed: np.ndarray = allowed) -> list[float]:
        return [
            round(n / 1000, 2)
            for n in np.bincount([choose(logits, allowed, sampling, u) for u in numbers], minlength=4)
        ]

    assert shares(Sampling()) == [0.1, 0.2, 0.3, 0.4]
    assert shares(Sampling(top_k=2)) == [0, 0, 0.43, 0.57]
    assert shares(Sampling(top_p=0.65)) == [0, 0, 0.43, 0.57]
    assert shares(Sampling(temperature=0)) == [0, 0, 0, 1]
    assert shares(Sampling(), np.array([True, True, False, False])) == [0.33, 0.67, 0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature is 0"),
        ({"top_k": -1}, "top-k is 0"),
        ({"top_p": 0.0}, "top-p is above 0"),
        ({"max_tokens": 401}, "max_tokens is from 1 to 400"),
        ({"samples": 0}, "at least one sample"),
        ({"prefix": [EOS]}, "forced prefix: token 0 has id 1"),
        ({"prefix": ["nowhere"]}, "'nowhere'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_named(
    model: Transformer, prompts: list[Prompt], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SearchformerError, match=message):
        Engine(model, VOCABULARY, precision="fp32").sample_all(prompts, **{"samples": 1, "max_tokens": 4} | settings)


def test_prompts_that_cannot_be_answered_are_named(model: Transformer) -> None:
    engine = Engine(model, VOCABULARY, precision="fp32")
    with pytest.raises(UnknownTokenError, match="token 1 is 'lava'"):
        engine.sample_all([["t00", "lava"]], samples=1)
    with pytest.raises(UnknownTokenError, match="token 2 has id 24; expected ids from 2 to 23"):
        engine.sample_all([[2, 3, 24]], samples=1)
    with pytest.raises(SearchformerError, match="has 402 tokens with bos and eos; the model takes 400"):
        engine.sample_all([[2] * 400], samples=1)


def test_a_budget_too_small_for_one_sequence_says_what_it_needs(model: Transformer) -> None:
    engine = Engine(model, VOCABULARY, precision="fp32", cache_gb=1e-4)
    with pytest.raises(SearchformerError, match=r"cache of 0\.0001 GB is too small for one sequence of 300 tokens"):
        engine.sample_all([[2, 3]], samples=1, max_tokens=300)


class DtypeSpy(TorchDispatchMode):
    """Notes the kind of number of every tensor that an operation reads or writes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.seen |= {leaf.dtype for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)}
        return result


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_k": 9, "top_p": 0.9}, {"temperature": 0}], ids=str)
def test_no_float64_reaches_a_device_without_it(
    model: Transformer, prompts: list[Prompt], sampling: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert widest_float(torch.device("cpu")) == torch.float64
    monkeypatch.setattr(device, "widest_float", lambda _: widest_float(torch.device("mps")))
    engine = Engine(model, VOCABULARY, backend=DeviceBackend(model, precision="fp32"))
    settings = {"samples": 3, "max_tokens": 40, "prefix": [5, 9], "automaton": without_eos(), **sampling}
    with DtypeSpy() as spy:
        found = engine.sample_all(prompts, **settings)
    assert torch.float64 not in spy.seen
    assert torch.float32 in spy.seen
    exact = Engine(model, VOCABULARY, precision="fp32").sample_all(prompts, **settings)
    same = [one.tokens.tolist() == other.tokens.tolist() for one, other in zip(found, exact, strict=True)]
    assert np.mean(same) > 0.9  # a number that rounds to a border between two tokens may fall on either side


def test_a_draw_at_the_very_end_takes_a_token_that_has_a_probability() -> None:
    logits, allowed = torch.zeros(1, 4), torch.tensor([[True, True, False, False]])
    assert draw(logits, allowed, Sampling(), torch.ones(1)).tolist() == [1]


def test_auto_is_bf16_where_products_are_not_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, mps, cpu_device = (torch.device(name) for name in ("cuda", "mps", "cpu"))

    def supported(*, including_emulation: bool = True) -> bool:
        return including_emulation  # as on GPUs that only emulate bfloat16

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose_precision("auto", cuda) == "fp32"
    assert train_precision("auto", make_config("15M", vocabulary=9), cuda) == "fp32"
    assert choose_precision("auto", mps) == "fp32"
    assert choose_precision("auto", cpu_device) == "bf16"
    assert choose_precision("int8", cpu_device) == "int8"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert choose_precision("auto", cuda) == "bf16"
    with pytest.raises(SearchformerError, match="bf16 is not available on mps"):
        check_precision("bf16", mps)


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_knows_the_systems_unit(platform: str, unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(ru_maxrss=3_000_000_000 // unit)
    monkeypatch.setattr(memory, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: usage))
    monkeypatch.setattr(sys, "platform", platform)
    assert memory.peak_memory_gb() == pytest.approx(3.0)


def test_peak_memory_is_0_where_the_system_does_not_tell() -> None:
    code = "import sys; sys.modules['resource'] = None; from searchformer.rollout import memory, dispatch; "
    done = subprocess.run([sys.executable, "-c", f"{code}print(memory.peak_memory_gb())"], capture_output=True)
    assert done.stdout == b"0.0\n", done.stderr.decode()


def test_unknown_precisions_are_refused(model: Transformer) -> None:
    with pytest.raises(SearchformerError, match="precision is one of auto, fp32, bf16, int8; found 'fp8'"):
        Engine(model, VOCABULARY, precision="fp8")
    with pytest.raises(SearchformerError, match="one of auto, fp32, bf16; found 'int8'"):
        DeviceBackend(model, precision="int8")


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_a_token_network_with_shift_answers_as_the_obvious_sampler_does(make, prompts: list[Prompt]) -> None:
    config = ModelConfig(vocabulary=len(VOCABULARY), dim=24, layers=2, heads=2, ffn=40, positions=400, shift=3)
    model = Transformer(config, generator=torch.Generator().manual_seed(1))
    for block in model.decoder.layers:
        torch.nn.init.normal_(block.shift, generator=torch.Generator().manual_seed(2))
    engine = Engine(model, VOCABULARY, backend=make(model), slots=4)
    expected = [sample_naively(model, prompt, sample=s, max_tokens=20) for prompt in prompts[:3] for s in range(2)]
    assert_same(engine.sample_all(prompts[:3], samples=2, max_tokens=20), expected)
