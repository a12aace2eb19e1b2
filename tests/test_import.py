"""`import reprogram` is light, what checks arguments knows no torch, and the order of the folders holds."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reprogram

ROOT = Path(reprogram.__file__).parent
HEAVY = (
    "timm",
    "torchvision",
    "sklearn",
    "scipy",
    "matplotlib",
    "ray",
    "open_clip",
    "tyro",
    "rich",
    "transformers",
    "datasets",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pyarrow",
    "lmdb",
    "fastapi",
    "uvicorn",
    "starlette",
    "prometheus_client",
    "python_multipart",
)
ORDER = (
    (
        "errors",
        "text",
        "cards",
        "progress",
        "randomness",
        "files",
        "child",
        "settings",
        "registry",
        "scores",
        "names",
        "lazy",
        "memory",
        "threads",
        "devices",
        "processes",
        "ranks",
    ),
    ("images",),
    ("programs",),
    ("sources",),
    ("acceleration",),
    ("statistics",),
    ("theory",),
    ("mappings",),
    ("reprogrammed",),
    ("data",),
    ("training",),
    ("answers",),
    ("audit",),
    ("run",),
    ("references",),
    ("figures",),
    ("report",),
    ("experiments",),
    ("predict",),
    ("export",),
    ("serve",),
    ("cli",),
    ("__main__",),
)
RANK = {name: place for place, names in enumerate(ORDER) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))
#: What is imported to check the arguments of a command.
BEFORE_TORCH = re.compile(
    r"((errors|text|cards|progress|files|child|settings|registry|names|lazy|memory|threads|ranks)|.*\.(settings|registry|__init__)|__init__"
    r"|run\.(config|defaults|paths)|cli\.(main|commands|checks|run_checks|compare_command|reproduce_command|arguments|text|outside)"
    r"|data\.paper_sets"
    r"|predict\.(output|words))"
)


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports_of(path):
    """The modules of this package that a file imports, wherever it does so, or names as "module:object"."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if path.name == "__init__.py" and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []  # lazy re-exports: nothing is imported until somebody asks
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{dotted(path)} imports relatively"
            names += [f"{node.module}.{alias.name}" if node.module == "reprogram" else node.module for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names += re.findall(r"^(reprogram(?:\.\w+)+):\w+$", node.value)
    return [name.removeprefix("reprogram.") for name in names if name.startswith("reprogram.")]


def test_every_module_has_its_place():
    assert {dotted(path).split(".")[0] for path in MODULES} - {"__init__"} == set(RANK)


@pytest.mark.parametrize("path", [path for path in MODULES if path != ROOT / "__init__.py"], ids=dotted)
def test_a_folder_imports_only_from_what_stands_before_it(path):
    own = dotted(path).split(".")[0]
    for name in imports_of(path):
        other = name.split(".")[0]
        if other in ("__version__", own):
            continue
        place = RANK[other]
        assert place < RANK[own] or (place == RANK[own] == 0), f"{dotted(path)} imports {name}"


def test_import_pulls_in_nothing_heavy():
    code = (
        f"import sys, reprogram; print([name for name in ('torch', 'numpy', *{HEAVY!r}) if name in sys.modules])\n"
        "for name in reprogram.__all__:\n    name.startswith('LabelMapper') or getattr(reprogram, name)\n"  # of scikit-learn
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n[]\n"


def test_what_checks_arguments_imports_no_torch():
    names = [dotted(path) for path in MODULES if BEFORE_TORCH.fullmatch(dotted(path))]
    assert len(names) > 25
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(('reprogram.' + name).removesuffix('.__init__'))\n"
        "    if 'torch' in sys.modules or 'numpy' in sys.modules: sys.exit(f'{name} imports torch or numpy')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_are_listed_and_there():
    assert set(reprogram.__all__) <= set(dir(reprogram))
    for package in sorted(path.parent for path in ROOT.rglob("__init__.py")):
        module = __import__(".".join(("reprogram", *package.relative_to(ROOT).parts)), fromlist=["x"])
        for name in getattr(module, "__all__", []):
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="'reprogram' has no attribute 'padding'"):
        _ = reprogram.padding
