"""The paths of the service as a plain page, made from the OpenAPI description; it loads nothing from anywhere."""

from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>reprogram: the paths of this service</title>
<link rel="icon" href="/favicon.svg"><link rel="stylesheet" href="/page.css">
</head><body class="reference"><header class="top"><a class="brand" href="/">reprogram</a>
<nav><a href="/">Try it</a><a href="/openapi.json">openapi.json</a></nav></header><main>"""


def reference_page(description: dict[str, Any]) -> str:
    """A page with every path, what it takes and what it answers.

    >>> "<code>/v2</code>" in reference_page({"paths": {"/v2": {"get": {"summary": "The <server>", "responses": {}}}}})
    True
    """
    parts = [_HEAD, "<h1>Paths</h1>", f"<p>{escape(str(description.get('info', {}).get('description', '')))}</p>"]
    for path, methods in description.get("paths", {}).items():
        for method, about in methods.items():
            parts.append(_section(path, method, about))
    return "\n".join([*parts, "</main></body></html>"])


def _section(path: str, method: str, about: dict[str, Any]) -> str:
    rows = [
        f'<section class="path"><h2><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code></h2>',
        f"<p>{escape(about.get('summary', ''))}. {escape(about.get('description', ''))}</p>",
    ]
    bodies = about.get("requestBody", {}).get("content", {})
    if bodies:
        rows.append(f"<p>Body: {', '.join(f'<code>{escape(kind)}</code>' for kind in bodies)}</p>")
    asked = [one for one in about.get("parameters", ()) if one.get("in") == "query"]
    if asked:
        items = "".join(
            f"<dt><code>{escape(one['name'])}</code></dt><dd>{escape(one.get('description') or '')}</dd>" for one in asked
        )
        rows.append(f"<p>Options, in the query or as fields of the body:</p><dl>{items}</dl>")
    known = {code: one for code, one in about.get("responses", {}).items() if code != "200"}
    if known:
        items = "".join(
            f"<dt>{escape(code)}</dt><dd>{escape(one.get('description', ''))}</dd>" for code, one in known.items()
        )
        rows.append(f"<details><summary>What it may answer besides</summary><dl>{items}</dl></details>")
    return "".join([*rows, "</section>"])
