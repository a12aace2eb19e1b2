"""A grid on a Ray cluster of two nodes, one of which dies, has the numbers of the same grid on this machine."""

import pytest

from reprogram.experiments.comparison import compare
from reprogram.experiments.recipe import Recipe
from reprogram.experiments.settings import Plan
from reprogram.files import read_sealed

SMALL = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32, "batch_size": 16, "calibration": "none"}


def numbers(folder):
    found = {path.parent.name: read_sealed(path, "result") for path in sorted(folder.glob("runs/*/result.json"))}
    return {name: (result["accuracy"], result["per_class"], result["files"]) for name, result in found.items()}


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with one processor each, and a head that carries out nothing."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_grid_survives_the_death_of_a_node(cluster, shapes, tmp_path):
    cluster, nodes = cluster
    grid = {"program": ["padding"], "mapping": ["blm", "ilm", "blm+"], "seed": [0, 1, 2, 3]}
    recipe = Recipe(settings={**SMALL, "data": str(shapes), "epochs": 3}, grid=grid)
    killed = []

    def on_change(status, cell):
        if not killed and status.counts["done"] >= 3 and status.counts["running"]:
            cluster.remove_node(nodes[1], allow_graceful=False)
            killed.append(dict(status.counts))

    status = compare(recipe, tmp_path / "ray", Plan(engine="ray"), on_change=on_change)
    assert killed
    assert killed[0]["done"] < 12
    assert status.counts == {"done": 12, "failed": 0, "running": 0, "waiting": 0}
    assert compare(recipe, tmp_path / "local", Plan(jobs=2)).counts["done"] == 12
    assert numbers(tmp_path / "ray") == numbers(tmp_path / "local")
