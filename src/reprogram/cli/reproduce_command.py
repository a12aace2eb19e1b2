"""What `reprogram reproduce` takes, and what can be wrong with it, found before torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from reprogram.errors import ReprogramError
from reprogram.experiments.items import PaperItem, find_item, item_recipe
from reprogram.experiments.settings import Plan
from reprogram.files.foreign import expanded


class ReproduceCommand(Plan):
    """Make a table or a figure of the paper again, and show ours beside the paper's; without a name, list what there is."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = Field(
        None, description="Such as table1; reprogram reproduce lists them."
    )
    data_root: str = Field("data", description="Folder that holds the paper's data sets; see `reprogram datasets`.")
    datasets: list[str] = Field([], description="Only these of its data sets, such as flowers102 dtd.")
    seeds: list[int] = Field([], description="Only these seeds, or others; by default 0, 1 and 2.")
    out: str = Field("runs/paper", description="Folder of the runs; tables that share it share their runs.")
    dry_run: bool = Field(
        False, description="List the runs, what data and weights they need, and what they would cost; carry out none."
    )


@dataclass(frozen=True)
class ReproducePlan:
    """What `reprogram reproduce` shall do.

    Attributes:
        command: the command.
        item: which table or figure; None lists them.
        out: the folder of the runs.
        data_root: the folder of the data sets.
    """

    command: ReproduceCommand
    item: PaperItem | None
    out: Path
    data_root: Path


def check_reproduce(command: ReproduceCommand) -> ReproducePlan:
    """The item is known, and it has runs on the data sets that were named."""
    out, root = expanded(command.out, "--out"), expanded(command.data_root, "--data-root")
    if command.address is not None and command.engine != "ray":
        raise ReprogramError(f"--address {command.address} goes with --engine ray; add that, or leave it out")
    if command.name is None:
        return ReproducePlan(command, None, out, root)
    for seed in command.seeds:
        if seed < 0:
            raise ReprogramError(f"--seeds {seed} was given, but numbers from 0 are expected; change it")
    item_recipe(command.name, command.datasets, command.seeds)
    return ReproducePlan(command, find_item(command.name), out, root)
