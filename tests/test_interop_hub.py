"""The Hugging Face Hub, offline: its real libraries read and write what we export, on local directories."""

import json
import shutil
from pathlib import Path

import pytest
from command import invoke

import searchformer
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError
from searchformer.interop.hub import HubModel, push_dataset
from searchformer.interop.models import load
from searchformer.pretrained import packaged_models

TASK = {"width": 6, "height": 6, "start": [0, 0], "goal": [3, 2], "walls": [[1, 0], [1, 1]]}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("data") / "mazes"
    invoke("generate", "maze", "--width", 4, "--height", 4, "--tasks", 60, "--test-fraction", 0.3, "--out", out)
    return out


@pytest.fixture(scope="module")
def model():
    return load(packaged_models()[0].name)


@pytest.fixture
def load_dataset(tmp_path, monkeypatch):
    """The real `datasets.load_dataset`, without the network and with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    def load(path: Path):
        return datasets.load_dataset(str(path), cache_dir=str(tmp_path / "cache"))

    return load


def test_datasets_finds_train_and_test(data, tmp_path, load_dataset):
    assert invoke("export", "hub", data, "--out", tmp_path / "hub").exception is None
    found, own = load_dataset(tmp_path / "hub"), Dataset(tmp_path / "hub", verify=True)
    assert set(found) == {"train", "test"}
    for split in ("train", "test"):
        assert found[split].num_rows == own.rows(split) > 0
        assert found[split][0]["trace"] == next(own.records(split))["trace"]


def test_datasets_reads_tokens_as_text(data, tmp_path, load_dataset):
    assert invoke("export", "hub", data, "--out", tmp_path / "hub", "--text").exception is None
    found, own = load_dataset(tmp_path / "hub"), Dataset(data)
    rows = list(own.records("train"))
    assert found["train"]["plan"][:] == [" ".join(own.vocabulary.decode(row["plan"])) for row in rows]
    assert found["train"][0]["prompt"].startswith("start ")
    assert found["train"]["trace_length"][:] == [row["trace_length"] for row in rows]
    assert not (tmp_path / "hub" / "manifest.json").exists()


def test_the_card_says_what_the_columns_are(data, tmp_path):
    invoke("export", "hub", data, "--out", tmp_path / "hub", "--text")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "path: train-*.parquet" in card
    assert "model_hub_mixin" not in card
    assert "| `prompt` | the task: tokens as text, separated by spaces |" in card


def test_a_model_is_saved_and_loaded_by_the_hubs_own_methods(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    assert "library_name: searchformer" in (tmp_path / "saved" / "README.md").read_text()
    again = HubModel.from_pretrained(tmp_path / "saved")
    assert again.sample([TASK], samples=2) == model.sample([TASK], samples=2)
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["trained"] == model.trained


def test_the_command_writes_a_model_with_its_card(tmp_path):
    name = packaged_models()[0].name
    result = invoke("export", "hub", name, "--out", tmp_path / "model")
    assert (result.exception, result.stdout) == (None, f"{tmp_path / 'model'}: with its card in README.md\n")
    assert load(tmp_path / "model").trained["domain"] == packaged_models()[0].domain
    assert "--text is for data sets" in str(invoke("export", "hub", name, "--out", tmp_path / "x", "--text").exception)
    facts = json.loads(invoke("export", "hub", name, "--out", tmp_path / "again", "--json").stdout)
    assert facts == {"out": str(tmp_path / "again"), "card": str(tmp_path / "again" / "README.md"), "pushed": None}


class FakeHub:
    """Stands for the Hub's server: keeps what is uploaded, and gives it back."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def create_repo(self, repo_id, **_):
        (self.place / repo_id).mkdir(parents=True)
        return type("Repository", (), {"repo_id": repo_id})

    def upload_folder(self, *, repo_id, folder_path, **_):
        shutil.copytree(folder_path, self.place / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}"

    def download(self, repo_id, **_):
        return str(self.place / repo_id)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    for place in ("huggingface_hub.hub_mixin.HfApi", "huggingface_hub.HfApi"):
        monkeypatch.setattr(place, lambda **_: fake)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fake.download)
    return fake


def test_what_is_pushed_can_be_loaded_by_its_id(model, hub):
    assert model.push_to_hub("me/planner") == "https://hub/me/planner"
    again = searchformer.load("me/planner")
    assert again.name == "me/planner"
    assert again.sample([TASK]) == model.sample([TASK])


def test_a_data_set_is_pushed_with_its_card(data, tmp_path, hub):
    assert push_dataset(Dataset(data), "me/mazes", tmp_path / "out") == "https://hub/me/mazes"
    assert Dataset(hub.place / "me" / "mazes", verify=True).rows("train") == Dataset(data).rows("train")


def test_an_unknown_model_is_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SearchformerError, match="nobody/nothing is no directory here, and not to be had from the Hub"):
        load("nobody/nothing")
    with pytest.raises(SearchformerError, match="holds no model"):
        load("nothing")


def test_a_missing_library_is_said_with_its_extra(monkeypatch):
    from searchformer.extras import install_command, require

    with pytest.raises(SearchformerError, match=r"nothing_at_all is not installed: pip install 'huggingface_hub>="):
        require("nothing_at_all", extra="hub")
    assert install_command("ray").startswith("pip install 'ray>=")
