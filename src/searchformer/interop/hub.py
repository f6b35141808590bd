"""Models and data sets for the Hugging Face Hub: directories with cards that its libraries read as they are.

In: a model or data set of ours. Out: a directory in which `datasets.load_dataset(DIR)` finds train and test, or which
`searchformer.load` takes; and the same on the Hub. Try: `searchformer export hub DIR --out NEW --text`.
"""

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import DatasetCardData, ModelCard, ModelCardData, ModelHubMixin

from searchformer.dataset.store import MANIFEST, PARTS, SPLITS, Dataset
from searchformer.errors import SearchformerError
from searchformer.files import new_directory, write_text
from searchformer.interop.models import Model, load
from searchformer.model import save_model
from searchformer.pretrained.package import card_facts, write_card
from searchformer.tokens.vocabulary import FILE_NAME, Vocabulary

TAGS = ("planning", "search", "searchformer")
CARD = "README.md"


class HubModel(Model, ModelHubMixin, library_name="searchformer", tags=list(TAGS)):
    """A model with the Hub's own methods: `from_pretrained`, `save_pretrained`, `push_to_hub`."""

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(self.network, self.vocabulary, save_directory, trained=self.trained)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, revision: str | None, **download: Any) -> Model:  # type: ignore[override]
        kept = {name: value for name, value in download.items() if name in ("cache_dir", "force_download", "token")}
        return load(model_id, revision=revision, local_files_only=bool(download.get("local_files_only")), **kept)

    def generate_model_card(self, *_: object, **__: object) -> ModelCard:
        """The card: what the Hub wants to know, then what `config.json` says of the training."""
        facts = card_facts(self.network, self.vocabulary, self.trained)
        kind = str(next(self.network.parameters()).dtype).removeprefix("torch.")
        header = ModelCardData(library_name="searchformer", tags=list(TAGS)).to_yaml()
        body = write_card(self.name, facts, None, [], stored=f"Weights are stored in {kind}.")
        usage = f'```python\nimport searchformer\n\nmodel = searchformer.load("{self.name}")\n```\n'
        return ModelCard(f"---\n{header}\n---\n\n{body}\n## Use\n\n{usage}")


def export_model(model: Model, out: Path) -> None:
    """Write a model with its card."""
    with new_directory(out) as directory:
        as_hub_model(model).save_pretrained(directory)


def as_hub_model(model: Model) -> HubModel:
    """The same model, with the Hub's methods."""
    return HubModel(model.network, model.vocabulary, model.trained, model.name)


def export_dataset(dataset: Dataset, out: Path, *, text: bool = False) -> None:
    """Write a data set with its card: the same files, or with `text` tokens as text in place of ids."""
    with new_directory(out) as directory:
        for shard in dataset.manifest.shards:
            if text:
                write_as_text(dataset.directory / shard.file, directory / shard.file, dataset.vocabulary)
            else:
                shutil.copyfile(dataset.directory / shard.file, directory / shard.file)
        if not text:
            for name in (FILE_NAME, MANIFEST):
                shutil.copyfile(dataset.directory / name, directory / name)
        write_text(directory / CARD, dataset_card(dataset, out.name, text=text))


def write_as_text(source: Path, target: Path, vocabulary: Vocabulary) -> None:
    """A shard with texts of tokens in the columns prompt, trace and plan, a row group at a time."""
    tokens = pa.array(vocabulary.tokens)
    with pq.ParquetFile(source) as file:
        columns = file.schema_arrow
        for part in PARTS:
            place = columns.get_field_index(part)
            columns = columns.set(place, pa.field(part, pa.string(), nullable=False))
        with pq.ParquetWriter(target, columns, compression="zstd") as writer:
            for batch in file.iter_batches(batch_size=1024):
                arrays = [
                    _joined(column, tokens) if name in PARTS else column
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=columns))


def _joined(ids: pa.ListArray, tokens: pa.Array) -> pa.Array:
    words = pa.ListArray.from_arrays(ids.offsets, tokens.take(ids.values))
    return pc.binary_join(words, " ")


def dataset_card(dataset: Dataset, name: str, *, text: bool) -> str:
    """The card of a data set; its header tells the Hub's libraries where the splits are."""
    manifest = dataset.manifest
    files = [{"split": split, "path": f"{split}-*.parquet"} for split in SPLITS if dataset.rows(split)]
    configs = [{"config_name": "default", "data_files": files}]
    header = DatasetCardData(configs=configs, tags=list(TAGS), pretty_name=name).to_yaml()
    settings = ", ".join(f"{key} {value}" for key, value in manifest.settings.items() if value is not None)
    made = {key: value for key, value in manifest.config.items() if key not in ("domain", "settings")}
    kind = "tokens as text, separated by spaces" if text else f"ids of tokens, whose texts are in {FILE_NAME} by id"
    lines = [
        f"# {name}",
        "",
        f"Planning tasks of the domain `{manifest.domain}` ({settings}) with searches of A*, made by searchformer",
        f"{manifest.package}: {dataset.rows('train'):,} for training, {dataset.rows('test'):,} for testing.",
        "",
        "| column | what |",
        "|---|---|",
        "| `task_id` | digest of the task |",
        f"| `prompt` | the task: {kind} |",
        "| `trace` | every node that the search created and closed, likewise |",
        "| `plan` | a plan, likewise |",
        "| `prompt_length`, `trace_length`, `plan_length` | in tokens |",
        "",
        "Made with: " + ", ".join(f"{key} {value}" for key, value in made.items() if value is not None) + ".",
    ]
    return f"---\n{header}\n---\n\n" + "\n".join(lines) + "\n"


def push_dataset(dataset: Dataset, repository: str, out: Path, *, text: bool = False, private: bool = False) -> str:
    """Export to `out`, then upload that as a data set of the Hub; returns its address."""
    export_dataset(dataset, out, text=text)
    api = huggingface_hub.HfApi()
    try:
        api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repository, repo_type="dataset", folder_path=out))
    except (huggingface_hub.errors.HfHubHTTPError, huggingface_hub.errors.HFValidationError, OSError) as error:
        raise SearchformerError(f"cannot upload to {repository}: {' '.join(str(error).split())[:200]}") from None
