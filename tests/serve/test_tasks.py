"""Who shares a pass, what stays in memory, and what comes back from the disk."""

import pytest
import torch

from reprogram.errors import ReprogramError
from reprogram.mappings.registry import MAPPINGS
from reprogram.reprogrammed import Reprogrammed
from reprogram.serve.limits import Refusal
from reprogram.serve.torch_tasks import TorchTasks as Tasks
from reprogram.serve.torch_tasks import lighten
from reprogram.sources.load import load_frozen
from serving import make_task


@pytest.fixture
def tasks(made_tasks):
    table = Tasks(2**30)
    for path in sorted(made_tasks.iterdir()):
        table.add(path.name, path, new_model=True)
    return table


def test_one_model_and_one_way_for_those_with_the_same_program(tasks):
    assert len(tasks.backbones) == 1
    ways = {name: tasks.get(name).way for name in tasks.entries}
    assert ways["birds"] is ways["boats"]
    assert ways["padded"] is ways["padded-too"]
    assert len(set(ways.values())) == 3


@pytest.mark.parametrize("name", [name for name in MAPPINGS if name not in ("none", "ensemble")])
def test_a_light_mapping_says_the_same(small, tmp_path, name):
    make_task(tmp_path / "task", small, ["a", "b", "c"], mapping=name, sets=False)
    whole = Reprogrammed.load(tmp_path / "task", small).mapping
    light = Reprogrammed.load(tmp_path / "task", small).mapping
    lighten(light)
    logits = torch.randn(7, small.k_source, generator=torch.Generator().manual_seed(5))
    one, other = whole.predict(logits, evidence=2), light.predict(logits, evidence=2)
    assert torch.equal(one.probabilities, other.probabilities)
    assert one.evidence == other.evidence


def test_a_task_in_memory_is_little_more_than_its_weights(tasks, small):
    task = tasks.get("birds")
    assert task.size < 4 * 3 * small.k_source + 4 * 2 * small.k_source + 2**15
    assert tasks.get("birds", whole=True).size > 10 * task.size
    assert task.mapping.source_labels is tasks.get("boats").mapping.source_labels


def test_the_one_that_was_used_longest_ago_leaves_and_comes_back(made_tasks):
    table = Tasks(60_000)  # room for two or three
    for path in sorted(made_tasks.iterdir()):
        table.add(path.name, path, new_model=True)
    assert len(table) == 5
    assert not table.is_resident("birds")
    table.get("birds")
    assert table.is_resident("birds")
    table.get("boats")
    table.get("padded")
    assert not table.is_resident("padded-too")
    assert sum(task.size for task in table.resident) <= 60_000
    assert table.metrics.registry.get_sample_value("reprogram_task_loads_total") > 5


def test_another_model_is_not_loaded_for_a_task_that_comes_later(tasks, tmp_path):
    other = load_frozen("timm:test_resnet", pretrained=False, seed=1)
    make_task(tmp_path / "foreign", other, ["a", "b"])
    with pytest.raises(ReprogramError, match="not in memory here"):
        tasks.add("foreign", tmp_path / "foreign")
    assert "foreign" not in tasks.entries
    assert len(tasks.backbones) == 1


def test_a_removed_task_is_gone(tasks):
    tasks.remove("birds")
    with pytest.raises(Refusal, match="no task 'birds'"):
        tasks.get("birds")
    with pytest.raises(Refusal):
        tasks.remove("birds")


@pytest.mark.parametrize("has", [True, False])
def test_a_task_is_served_in_its_precision_where_the_processor_has_it(processor, small, tmp_path, monkeypatch, has):
    make_task(tmp_path / "full", small, ["a", "b"])
    model = Reprogrammed.load(make_task(tmp_path / "low", small, ["a", "b"]), small)
    model.precision = "bf16"
    model.save(tmp_path / "low")
    processor(has)
    table = Tasks(2**30)
    for path in sorted(tmp_path.iterdir()):
        table.add(path.name, path, new_model=True)
    ways = {name: table.get(name).way for name in table.entries}
    assert (ways["full"] is ways["low"]) is not has
    assert ways["low"].precision == ("bf16" if has else "fp32")
    assert len(table.notes) == (not has)
    image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(1)).numpy()
    full, low = (ways[name]([image]) for name in ("full", "low"))
    assert full.dtype == low.dtype == torch.float32
    assert torch.equal(full, low) is not has
    assert torch.equal(low, low.bfloat16().float()) is has
    assert ways["low"].prepare().endswith(", in bf16") is has
