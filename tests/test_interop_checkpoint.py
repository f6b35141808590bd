"""Published checkpoints: read without running code, checked against their size, and written back bit for bit."""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from command import invoke
from test_model import GOLDEN, reference_weights

from searchformer.errors import SearchformerError
from searchformer.interop.meta_checkpoint import (
    ROPE,
    _checked_weights,
    export_checkpoint,
    import_checkpoint,
    published_weights,
    read_checkpoint,
)
from searchformer.interop.published import SIZES, Language, parse_domain, read_language
from searchformer.model import Transformer, load_model, make_config, save_model
from searchformer.rollout import Engine

MAZE10 = Language.of(parse_domain("maze:10x10"))


def write_checkpoint(path: Path, model: dict, *, size: str = "s", **more) -> Path:
    """A file in the published layout."""
    config = {"_id": "run", "encoder": f"enc-{size}", "decoder": f"dec-{size}", "optimizer": {"lr": 2.5e-4}}
    torch.save({"checkpoint_id": "id", "step": 7, "config": config, "model": model, "optimizer": {}} | more, path)
    return path


@pytest.fixture(scope="module")
def golden_weights() -> dict[str, torch.Tensor]:
    config = make_config("15M", vocabulary=len(MAZE10.vocabulary))
    shapes = Transformer(config, device="meta").state_dict()
    weights = {name: reference_weights(name, tensor.shape) for name, tensor in shapes.items()}
    return published_weights(weights, config)


@pytest.fixture(scope="module")
def checkpoint(golden_weights, tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "golden.ckpt", golden_weights)


@pytest.fixture(scope="module")
def imported(checkpoint, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("imported") / "model"
    import_checkpoint(checkpoint, out, language=MAZE10)
    return out


def refusal(path: Path, out: Path, language: Language = MAZE10, **how) -> str:
    """The one line with which a file is refused; nothing is written."""
    with pytest.raises(SearchformerError) as caught:
        import_checkpoint(path, out, language=language, **how)
    assert not out.exists()
    assert list(out.parent.glob(".*.tmp")) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_imported_model_answers_as_the_published_network_does(imported):
    model, vocabulary = load_model(imported)
    with np.load(GOLDEN) as golden:
        assert list(vocabulary.tokens) == golden["vocabulary"].tolist()
        for index in range(4):
            prompt, response = golden[f"prompt_{index}"], golden[f"response_{index}"]
            with torch.inference_mode():
                logits = model(torch.from_numpy(prompt)[None], torch.from_numpy(response)[None, :-1])[0, ::8]
            assert np.abs(logits.numpy() - golden[f"logits_{index}"]).max() < 1e-4
        prompts = [golden[f"prompt_{index}"][1:-1] for index in range(4)]
        limits = np.array([[len(golden[f"greedy_{index}"]) - 1] for index in range(4)])
        engine = Engine(model, vocabulary, precision="fp32")
        answers = engine.sample_all(prompts, samples=1, temperature=0.0, max_tokens=limits)
        for index, answer in enumerate(answers):
            assert answer.tokens.tolist() == golden[f"greedy_{index}"][1:].tolist()


def test_the_command_says_what_it_wrote(checkpoint, tmp_path):
    result = invoke("import", "meta-checkpoint", checkpoint, "--vocabulary", "maze:10x10", "--out", tmp_path / "m")
    assert result.exception is None
    assert result.stdout == f"{tmp_path / 'm'}: size 15M, step 7\n"


def test_the_round_trip_is_bit_exact(golden_weights, imported, tmp_path):
    export_checkpoint(imported, tmp_path / "again.ckpt")
    again = read_checkpoint(tmp_path / "again.ckpt")
    assert again["step"] == 7
    assert again["checkpoint_id"] == "id"
    assert again["config"]["optimizer"] == {"lr": 2.5e-4}
    assert again["model"].keys() == golden_weights.keys()
    assert all(torch.equal(again["model"][name], weight) for name, weight in golden_weights.items())
    import_checkpoint(tmp_path / "again.ckpt", tmp_path / "model", language=read_language(str(imported)))
    for file in ("model.safetensors", "config.json", "vocabulary.json"):
        assert (tmp_path / "model" / file).read_bytes() == (imported / file).read_bytes()


@pytest.mark.parametrize("theirs", SIZES)
@pytest.mark.parametrize("tokens", ["maze:30x30", "sokoban"])
def test_every_size_has_the_published_names_and_shapes(tmp_path, theirs, tokens):
    language = Language.of(parse_domain(tokens))
    config = make_config(SIZES[theirs], vocabulary=len(language.vocabulary))
    shapes = Transformer(config, device="meta").state_dict()
    one = torch.ones(1)
    weights = {name: one.expand(tensor.shape) for name, tensor in shapes.items()}  # a byte stands for all of them
    path = write_checkpoint(tmp_path / "shape.ckpt", published_weights(weights, config), size=theirs)
    found = read_checkpoint(path)["model"]
    assert sum(name.endswith(tuple(ROPE)) for name in found) == 4 * config.layers
    assert _checked_weights(path, found, config, SIZES[theirs]).keys() == shapes.keys()
    other = make_config("15M" if theirs != "s" else "46M", vocabulary=len(language.vocabulary))
    with pytest.raises(SearchformerError, match=r"has the shape|no tensor"):
        _checked_weights(path, found, other, "other")


def test_half_precision_weights_stay_as_they_are(golden_weights, tmp_path):
    halved = {name: value if "rope" in name else value.bfloat16() for name, value in golden_weights.items()}
    import_checkpoint(write_checkpoint(tmp_path / "half.ckpt", halved), tmp_path / "model", language=MAZE10)
    export_checkpoint(tmp_path / "model", tmp_path / "again.ckpt")
    again = read_checkpoint(tmp_path / "again.ckpt")["model"]
    assert all(torch.equal(again[name], value) for name, value in halved.items())


class Malicious:
    def __reduce__(self):
        return os.system, ("touch was-run",)


def test_a_malicious_checkpoint_is_refused_and_runs_nothing(golden_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for how in ({"optimizer": Malicious()}, {"config": {"encoder": Malicious()}}):
        path = write_checkpoint(tmp_path / "evil.ckpt", golden_weights, **how)
        assert "its pickle names posix.system" in refusal(path, tmp_path / "out")
    (tmp_path / "plain.ckpt").write_bytes(pickle.dumps(Malicious()))
    assert "is not a checkpoint that torch.save wrote" in refusal(tmp_path / "plain.ckpt", tmp_path / "out")
    torch.save(Malicious(), tmp_path / "legacy.ckpt", _use_new_zipfile_serialization=False)
    assert "is not a checkpoint that torch.save wrote" in refusal(tmp_path / "legacy.ckpt", tmp_path / "out")
    assert not (tmp_path / "was-run").exists()


def test_what_does_not_fit_the_size_is_named(golden_weights, tmp_path):
    def changed(**changes):
        model = {name: value for name, value in (golden_weights | changes).items() if value is not None}
        return write_checkpoint(tmp_path / "changed.ckpt", model)

    embedding, rope = "module.model.encoder.embedding.weight", "module.model.decoder.layers.3.attention.rope.sin_param"
    out = tmp_path / "out"
    assert "1 tensors are missing, such as encoder.embedding.weight" in refusal(changed(**{embedding: None}), out)
    assert "has no tensor 'banana'" in refusal(changed(banana=torch.ones(1)), out)
    assert "is --vocabulary the right one?" in refusal(changed(), out, Language.of(parse_domain("maze:20x20")))
    assert "is it another size?" in refusal(changed(), out, size="46M")
    wrong = golden_weights[rope].clone()
    wrong[0, 5000, 0, 3] += 0.01
    assert "is not the table of rotary positions" in refusal(changed(**{rope: wrong}), out)
    assert "expected [1, 65536, 1, 32]" in refusal(changed(**{rope: wrong[:, :9]}), out)
    assert "one floating type" in refusal(changed(**{embedding: golden_weights[embedding].long()}), out)


def test_an_unknown_size_must_be_said(golden_weights, tmp_path):
    path = write_checkpoint(tmp_path / "odd.ckpt", golden_weights, size="tiny")
    assert "say it with --size" in refusal(path, tmp_path / "out")
    import_checkpoint(path, tmp_path / "out", language=MAZE10, size="15M")
    assert load_model(tmp_path / "out")[0].config.dim == 192


def test_what_is_no_checkpoint_is_refused(tmp_path):
    out = tmp_path / "out"
    assert "cannot read" in refusal(tmp_path / "missing.ckpt", out)
    (tmp_path / "text.ckpt").write_text("not a checkpoint")
    assert "is not a checkpoint" in refusal(tmp_path / "text.ckpt", out)
    with zipfile.ZipFile(tmp_path / "zip.ckpt", "w") as archive:
        archive.writestr("other.txt", "x")
    assert "not one that torch.save wrote" in refusal(tmp_path / "zip.ckpt", out)
    torch.save([1, 2], tmp_path / "list.ckpt")
    assert "expected a dict with 'model'" in refusal(tmp_path / "list.ckpt", out)
    torch.save({"model": {"a": 1}}, tmp_path / "dict.ckpt")
    assert "maps names to tensors" in refusal(tmp_path / "dict.ckpt", out)


def test_a_directory_with_something_in_it_is_left_alone(checkpoint, tmp_path):
    (tmp_path / "note").write_text("mine")
    with pytest.raises(SearchformerError, match="is not empty"):
        import_checkpoint(checkpoint, tmp_path, language=MAZE10)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_only_the_published_sizes_can_be_exported(tmp_path):
    config = make_config("1M", vocabulary=len(MAZE10.vocabulary))
    save_model(Transformer(config), MAZE10.vocabulary, tmp_path / "small", trained={})
    with pytest.raises(SearchformerError, match="for the sizes 15M, 46M, 175M, 747M"):
        export_checkpoint(tmp_path / "small", tmp_path / "x.ckpt")
