"""How a grid is carried out; known before torch is imported."""

from typing import Literal

from pydantic import Field

from reprogram.settings import Settings

Engine = Literal["local", "ray"]
Stale = Literal["refuse", "keep", "again"]
Measure = Literal["selected", "last", "best_on_test"]


class Plan(Settings):
    """How the runs of a grid are carried out."""

    engine: Engine = Field("local", description="Carry out runs in processes of this machine, or on a Ray cluster.")
    jobs: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Runs at a time on this machine; by default one for each GPU, or as many as the cores allow.",
    )
    cpus_per_run: int = Field(1, ge=1, le=4096, description="Cores, and threads, of each run.")
    gpus_per_run: float = Field(0.0, ge=0, le=64, description="GPUs of each run on a Ray cluster, such as 1 or 0.5.")
    address: str | None = Field(
        None, description="Of the Ray cluster, such as auto or ray://host:10001; else one is started."
    )
    retry: bool = Field(False, description="Begin failed runs again; by default they stay failed, with their error.")
    stale: Stale = Field(
        "refuse",
        description="Finished runs that were made by other code, from other images or with other weights: refuse to go on, "
        "keep them all the same, or make them again (the old ones are kept aside).",
    )
