"""Packages that re-export lazily: names resolve, checkers see the same names, and looking costs no torch."""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import reprogram
from reprogram.lazy import lazy_names

PACKAGES = ["reprogram", *(found.name for found in pkgutil.walk_packages(reprogram.__path__, "reprogram.") if found.ispkg)]
LAZY = [name for name in PACKAGES if hasattr(importlib.import_module(name), "_WHERE")]
# what is looked at before torch is imported, so that a mistake in the arguments is told at once
BEFORE_TORCH = [
    *(f"reprogram.{name}" for name in ("errors", "files", "lazy", "names", "progress", "registry", "settings", "threads")),
    *(
        f"{package}.{module}"
        for package in PACKAGES
        for module in ("registry", "settings")
        if importlib.util.find_spec(f"{package}.{module}") is not None
    ),
]


def checked_names(package):
    """What a type checker sees: the names under `if TYPE_CHECKING`, and the modules that they come from."""
    tree = ast.parse(Path(importlib.import_module(package).__file__).read_text())
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and not node.orelse
    )
    assert block.test.id == "TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    for node in imports:
        assert all(alias.name == alias.asname for alias in node.names), "`as` itself, which says that it is re-exported"
    return {alias.name: node.module for node in imports for alias in node.names}


def imported_modules(code):
    """The modules that a new process has imported after some code."""
    code += "\nimport sys; print(*sys.modules, sep='\\n')"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n"))


def test_there_are_lazy_packages():
    assert {"reprogram", "reprogram.mappings", "reprogram.sources", "reprogram.data", "reprogram.programs"} <= set(LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_every_name_resolves(package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module._WHERE)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        value = getattr(module, name)
        assert value is getattr(importlib.import_module(module._WHERE[name]), name)
        assert vars(module)[name] is value, "found without __getattr__ the next time"


@pytest.mark.parametrize("package", LAZY)
def test_checkers_see_the_same_names(package):
    assert checked_names(package) == importlib.import_module(package)._WHERE


@pytest.mark.parametrize("package", LAZY)
def test_no_name_hides_a_module(package):
    """`import reprogram.mappings.gaussians as g` must give a module, whatever was asked for before."""
    module = importlib.import_module(package)
    inside = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert not inside & set(module._WHERE)


def test_a_module_is_a_module_also_after_its_name_was_used():
    code = (
        "import types, reprogram.mappings\n"
        "assert callable(reprogram.mappings.gaussian)\n"
        "import reprogram.mappings.gaussians as g\n"
        "assert isinstance(g, types.ModuleType) and g.gaussian is reprogram.mappings.gaussian\n"
    )
    assert "reprogram.mappings.gaussians" in imported_modules(code)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'reprogram' has no attribute 'LabelMaper'"):
        reprogram.LabelMaper  # noqa: B018
    with pytest.raises(ImportError, match="LabelMaper"):
        from reprogram import LabelMaper  # noqa: F401


def test_packages_and_what_is_looked_at_first_import_no_torch():
    found = imported_modules("\n".join(f"import {name}" for name in (*PACKAGES, *BEFORE_TORCH)))
    assert {"reprogram.mappings.settings", "reprogram.run.config"} & found, "otherwise this test tests nothing"
    assert not {"torch", "numpy", "sklearn", "timm"} & found


def test_looking_into_the_tables_imports_no_torch():
    code = (
        "from reprogram.mappings.registry import MAPPINGS\n"
        "from reprogram.programs.registry import PROGRAMS\n"
        "from reprogram.sources.registry import SOURCES\n"
        "MAPPINGS.read('blm+', {'top_ratio': '0.5'})\n"
        "MAPPINGS.setting_names(), PROGRAMS.setting_names(), SOURCES.setting_names()"
    )
    assert "torch" not in imported_modules(code)


def test_names_are_imported_when_asked_and_then_kept(monkeypatch):
    package = type(sys)("somebody")
    monkeypatch.setitem(sys.modules, "somebody", package)
    get, listed, names = lazy_names("somebody", {"floor": "math", "Path": "pathlib"})
    assert (names, {"floor", "Path"} <= set(listed())) == (["Path", "floor"], True)
    assert "floor" not in vars(package)
    assert get("floor")(2.5) == 2
    assert vars(package)["floor"](2.5) == 2
    with pytest.raises(AttributeError, match="module 'somebody' has no attribute 'ceil'"):
        get("ceil")
