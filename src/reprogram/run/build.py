"""A configuration becomes data, a frozen model and a `Reprogrammed`; one call does all of it and trains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.data.dataset import DataSet
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.devices import choose_device
from reprogram.errors import ReprogramError
from reprogram.files import processes_worth_starting
from reprogram.mappings.base import Mapping, make_mapping
from reprogram.mappings.registry import AUTO
from reprogram.mappings.selection import Candidate, Selection
from reprogram.programs.base import Program, make_program
from reprogram.progress import Progress
from reprogram.randomness import derived_seed
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen
from reprogram.sources.registry import SOURCES, source_of
from reprogram.training.choice import select_mapping
from reprogram.training.state import pixel_sizes
