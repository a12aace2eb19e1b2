"""Write a software bill of materials of the running environment: CycloneDX 1.5, JSON, the same bytes for the same packages.

Usage: python tools/sbom.py FILE. `make sbom` writes build/sbom.cdx.json.
"""

import json
import re
import sys
import uuid
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packages import installed, licence, locked, needs, wheel_of

OWN = "reprogram"


def purl(name: str, version: str) -> str:
    """The package URL of a version of a Python package."""
    return f"pkg:pypi/{name}@{quote(version, safe='.')}"


def licences(distribution: Distribution) -> list[dict[str, Any]]:
    """The licence in the form that CycloneDX wants: an SPDX expression, an SPDX identifier or a name."""
    try:
        text = licence(distribution)
    except ValueError:
        return []
    if re.search(r" (AND|OR|WITH) ", text):
        return [{"expression": text}]
    return [{"license": {"id" if re.fullmatch(r"[A-Za-z0-9.]+(-[A-Za-z0-9.]+)*", text) else "name": text}}]


def component(name: str, distribution: Distribution, locks: dict[str, Any]) -> dict[str, Any]:
    """One package, with the hash of its wheel where that wheel is a locked one."""
    here = purl(name, distribution.version)
    found: dict[str, Any] = {"type": "library", "bom-ref": here, "name": name, "version": distribution.version, "purl": here}
    version, wheels = locks.get(name, ("", ()))
    wheel = wheel_of(distribution, wheels) if version == distribution.version else None
    if wheel is not None:
        found["hashes"] = [{"alg": "SHA-256", "content": wheel.sha256}]
    stated = licences(distribution)
    if stated:
        found["licenses"] = stated
    return found


def bill() -> dict[str, Any]:
    """The bill of everything that is installed, in alphabetical order; no time and no path stands in it."""
    there, locks = installed(), locked()
    parts = {name: component(name, distribution, locks) for name, distribution in there.items()}
    own = parts.pop(OWN)
    graph = [
        {
            "ref": purl(name, distribution.version),
            "dependsOn": sorted({purl(need, there[need].version) for need, _ in needs(distribution) if need in there}),
        }
        for name, distribution in there.items()
    ]
    content = {"metadata": {"component": own}, "components": list(parts.values()), "dependencies": graph}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FILE")
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(), indent=2) + "\n", encoding="utf-8")
    print(f"{target}: {len(bill()['components'])} packages")
