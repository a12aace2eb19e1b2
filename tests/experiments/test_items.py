"""Every recipe of the paper: it expands, covers its table, resolves to the published protocol, and its first run works."""

import pytest

from replicas import write_cifar, write_coop
from reprogram.data.paper_sets import PAPER
from reprogram.errors import ReprogramError
from reprogram.experiments.grid import expand
from reprogram.experiments.items import ITEMS, datasets_of, find_item, item_recipe
from reprogram.experiments.published import identity, published_table, without_data
from reprogram.files import read_json
from reprogram.references.folder import run_reference
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve
from reprogram.run.folder import run_fit
from reprogram.sources.registry import find_source

RUNS = {
    **{"table1": 396, "table2": 144, "table3": 216, "table5": 90, "table6": 24, "table7": 360, "table8": 54, "table9": 144},
    **{"figure5": 108, "figure6": 60, "figure9": 90, "figure10": 75},
}
TABLES = [name for name in ITEMS if name.startswith("table")]


def facts_of(cell):
    entry, kind = PAPER[cell.data.removeprefix("paper:")], find_source(cell.config.model)[0].kind
    return Facts(
        input_size=224,
        default_program=kind.default_program,
        frame=kind.default_frame,
        paper_training=dict(kind.paper_training),
        native_size=500,
        published_size=entry.image_size,
        published_batch=entry.batch_size,
        flip_safe=entry.flip_safe,
    )


@pytest.mark.parametrize("name", ITEMS)
def test_a_recipe_expands_into_runs_of_the_published_protocol(name):
    cells = expand(item_recipe(name))
    assert len(cells) == RUNS[name]
    assert {cell.seed for cell in cells} == {0, 1, 2}
    for cell in cells[:: max(1, len(cells) // 20)]:
        config, entry = resolve(cell.config, facts_of(cell)), PAPER[cell.data.removeprefix("paper:")]
        assert config.protocol == "paper"
        assert config.batch_size == entry.batch_size
        assert config.epochs == cell.settings["epochs"]
        assert config.canvas == 224
        clip = config.model.startswith("openclip:")
        assert (config.optimizer, config.lr, config.schedule) == (
            ("sgd", 40, "cosine") if clip else ("adam", 0.01, "multistep")
        )
        if cell.reference is None and config.program == "padding":
            assert config.extras["image_size"] == entry.image_size
        if cell.reference is None and config.program == "watermark":
            assert config.augment == ("none" if clip else "flip")
            assert config.extras["frame"] == (30 if clip else None)


@pytest.mark.parametrize("name", TABLES)
def test_every_number_of_a_table_has_its_runs_and_every_run_its_number(name):
    cells = expand(item_recipe(name))
    runs = {identity(cell.settings) for cell in cells}
    numbers = [number for table in ITEMS[name].tables for number in published_table(table).numbers()]
    printed = {identity(number.facts) for number in numbers if not number.is_average}
    averages = {identity(number.facts) for number in numbers if number.is_average}
    assert averages <= {without_data(run) for run in runs}
    assert printed == (runs if name != "table7" else set())


def test_tables_share_their_runs():
    names = {name: {cell.name for cell in expand(item_recipe(name))} for name in ITEMS}
    assert names["figure5"] <= names["table1"]
    assert len(names["table3"] & names["table1"]) == 108  # -Bayes, BLM and BLM+
    assert len(names["table7"] & names["table1"]) == 144
    assert len(names["table5"] & names["table1"]) == 3
    assert len(names["table8"] & names["table1"]) == 12
    assert len(set.union(*names.values())) == 1317


def test_some_data_sets_and_seeds():
    cells = expand(item_recipe("table1", ["dtd", "svhn"], [7], {"data_root": "/data"}))
    assert len(cells) == 2 * 11
    assert {(cell.data, cell.seed, cell.config.data_root) for cell in cells} == {
        ("paper:dtd", 7, "/data"),
        ("paper:svhn", 7, "/data"),
    }
    assert datasets_of(cells) == ["dtd", "svhn"]
    assert len(expand(item_recipe("table6", ["dtd"]))) == 6
    whole = {cell.name for cell in expand(item_recipe("table1"))}
    assert {cell.name for cell in expand(item_recipe("table1", ["dtd"], [1]))} <= whole


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_item("tabel1"), "did you mean 'table1'"),
        (lambda: item_recipe("table1", ["flowers"]), "did you mean 'flowers102'"),
        (lambda: item_recipe("table5", ["dtd"]), "table5 has no run on dtd; it is about flowers102"),
        (lambda: item_recipe("figure6", ["svhn"]), "it is about cifar100"),
    ],
)
def test_mistakes_are_one_sentence(call, message):
    with pytest.raises(ReprogramError) as caught:
        call()
    assert message in str(caught.value)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    root = tmp_path_factory.mktemp("replicas")
    write_coop(root, "flowers102")
    write_cifar(root, fine=True, binary=True)
    return root


@pytest.mark.filterwarnings("ignore::reprogram.errors.EvidenceWarning")  # a replica of CIFAR100 has four of its classes
@pytest.mark.parametrize("name", ITEMS)
def test_the_first_run_works_on_a_replica_with_random_weights(name, replicas, tmp_path):
    cell = expand(item_recipe(name, settings={"data_root": str(replicas)}))[0]
    changes = {"pretrained": False, "epochs": 1, "batch_size": 2, "cache": False}
    changes |= {} if cell.config.model.startswith("openclip:") else {"canvas": 64}
    config = FitConfig.read({**cell.settings, **changes})
    result = run_fit(config, tmp_path / "run")
    assert len(result.records) == 1
    assert result.records[0]["loss"] > 0
    assert 0 <= result.accuracy["best_on_test"] <= 1
    assert result.model.program.free_parameters > 0
    assert result.model.mapping.name == config.named_mapping


@pytest.mark.parametrize(("method", "trained"), [("finetuning, linear", 512 * 2 + 2), ("finetuning, fully", 11_177_538)])
def test_finetuning_of_the_table_of_cost_works_the_same_way(method, trained, replicas, tmp_path):
    cells = expand(item_recipe("table8", settings={"data_root": str(replicas)}))
    cell = next(cell for cell in cells if cell.labels == {"model": "ResNet-18", "method": method})
    settings = {name: value for name, value in cell.settings.items() if name != "reference"}
    changes = {"pretrained": False, "epochs": 1, "batch_size": 2, "cache": False, "canvas": 64}
    result = run_reference(cell.reference, FitConfig.read({**settings, **changes}), tmp_path / "run")
    assert 0 <= result.accuracy["best_on_test"] <= 1
    written = read_json(tmp_path / "run" / "result.json", "result")
    assert written["parameters"]["free"] == trained
    assert written["seconds"] > 0
