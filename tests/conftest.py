"""Fixtures that several test files share."""

import pytest

from reprogram.zoo import load_frozen


@pytest.fixture(scope="session")
def lite0():
    """The bundled ImageNet model, loaded once. It is frozen, so no test can spoil it for another."""
    return load_frozen("bundled:efficientnet_lite0")
