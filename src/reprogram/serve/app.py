"""The paths of the service; what they do is in `service`, and what every request passes is in `front`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from reprogram.serve import protocol_v2
from reprogram.serve.bodies import Images, Options, parsed, parts_of, read_images, read_options, receive
from reprogram.serve.front import Front, refused
from reprogram.serve.limits import Refusal
from reprogram.serve.reference import reference_page
from reprogram.serve.service import Service
from reprogram.serve.store import unpacked
from reprogram.text import json_text

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is damaged."},
    401: {"description": "A token is needed."},
    404: {"description": "There is no such task."},
    413: {"description": "Too many bytes, images or pixels."},
    415: {"description": "Not a kind of content, or of image, that is read here."},
    422: {"description": "An image or an option is not what it should be."},
    429: {"description": "Too much is waiting; try again in a second."},
    503: {"description": "The service is not ready, or is being ended."},
}
_IMAGES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"images": {"type": "array", "items": {"type": "string", "format": "byte"}}},
                }
            },
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "parameters": [
        {"name": name, "in": "query", "required": False, "description": field.description, "schema": {"type": "string"}}
        for name, field in Options.model_fields.items()
    ],
}
_ARTEFACT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        name: {"type": "string", "format": "binary"} for name in ("artefact.json", "artefact.safetensors")
                    },
                }
            },
        },
    }
}


def make_app(service: Service) -> ASGIApp:
    """The application that uvicorn runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="reprogram",
        version=version("reprogram"),
        description="Tasks over one frozen image model: send images, get labels, probabilities and evidence.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers={Refusal: refused, HTTPException: refused, ClientDisconnect: refused, Exception: refused},
    )
    _add_pages(app, service)
    _add_tasks(app, service)
    _add_changes(app, service)
    _add_v2(app, service)
    return Front(app, service)


def _json(content: Any, status: int = 200) -> Response:
    return Response(json_text(content), status, media_type="application/json")


def _add_pages(app: FastAPI, service: Service) -> None:
    folder = files("reprogram.serve") / "page"
    for path, (name, kind) in _PAGE.items():
        content = (folder / name).read_bytes()

        async def page(_: Request, content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind)

        app.add_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(reference_page(app.openapi()), media_type="text/html; charset=utf-8")

    @app.get("/metrics", summary="Counts and durations, for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def _add_tasks(app: FastAPI, service: Service) -> None:
    @app.get("/v1/tasks", summary="List the tasks", responses=_some(401))
    async def tasks() -> Response:
        found = [service.tasks.entries[name].facts for name in sorted(service.tasks.entries)]
        return _json({"tasks": found, "uploads": service.uploads})

    @app.get("/v1/tasks/{name}", summary="Describe a task, with its classes", responses=_some(401, 404, 503))
    async def task(name: str) -> Response:
        entry, found = service.tasks.entry(name), await service.task(name, Options())
        return _json({**entry.facts, **found.details})

    @app.post(
        "/v1/tasks/{name}/predict",
        summary="Classify images",
        description="Each image gets its label, the calibrated probability, and the source labels that decided.",
        responses=_some(400, 401, 404, 413, 415, 422, 429, 503),
        openapi_extra=_IMAGES,
    )
    async def predict(name: str, request: Request) -> Response:
        service.tasks.entry(name)
        with service.room.share() as share:
            body = await _body(request, service, share)
            found = await _images(body, request, service)
            options = read_options({**request.query_params, **found.options})
            request.state.images = len(found.files)
            rows = await service.classify_files(name, found.files, options)
        return _json({"task": name, "predictions": rows})


def _add_changes(app: FastAPI, service: Service) -> None:
    @app.put(
        "/v1/tasks/{name}",
        summary="Add or replace a task",
        description="With --allow-upload alone. The artefact must belong to a model that is in memory.",
        responses=_some(400, 401, 404, 413, 415, 422, 429, 503),
        openapi_extra=_ARTEFACT,
    )
    async def put(name: str, request: Request) -> Response:
        _check_uploads(service)
        with service.room.share() as share:
            body = await _body(request, service, share)
            kind = request.headers.get("content-type", "")
            if kind.startswith("multipart/form-data"):
                parts = await service.aside(lambda: parts_of(body, kind))
                sent = {str(filename or called).rpartition("/")[2]: content for called, filename, content in parts}
            elif kind.partition(";")[0].strip() in ("application/zip", "application/octet-stream"):
                sent = await service.aside(lambda: unpacked(body, 4 * service.limits.upload))
            else:
                raise Refusal(415, "an artefact is sent as application/zip or as multipart/form-data; choose one")
            new = await service.aside(lambda: service.store.put(name, sent))
        return _json(service.tasks.entry(name).facts, 201 if new else 200)

    @app.delete(
        "/v1/tasks/{name}",
        summary="Remove a task",
        description="With --allow-upload alone, and only what was uploaded.",
        responses=_some(401, 404, 422),
    )
    async def delete(name: str) -> Response:
        _check_uploads(service)
        await service.aside(lambda: service.store.delete(name))
        return _json({"removed": name})


def _add_v2(app: FastAPI, service: Service) -> None:
    @app.get("/v2", summary="Open Inference Protocol: the server")
    async def server() -> Response:
        return _json({"name": "reprogram", "version": version("reprogram"), "extensions": protocol_v2.EXTENSIONS})

    @app.get("/v2/health/live", summary="Whether the process answers")
    async def live() -> Response:
        return _json({"live": True})

    @app.get("/v2/health/ready", summary="Whether it takes requests", responses=_some(503))
    async def ready() -> Response:
        if not service.ready or service.draining:
            raise Refusal(503, "this service is being ended, or is not ready yet; try again")
        return _json({"ready": True})

    @app.get("/v2/models/{name}", summary="Open Inference Protocol: a task as a model", responses=_some(401, 404, 503))
    async def model(name: str) -> Response:
        return _json(protocol_v2.metadata(await service.task(name, Options()), name))

    @app.get(
        "/v2/models/{name}/ready", summary="Open Inference Protocol: whether a task is there", responses=_some(401, 404)
    )
    async def model_ready(name: str) -> Response:
        service.tasks.entry(name)
        return _json({"name": name, "ready": service.ready and not service.draining})

    @app.post(
        "/v2/models/{name}/infer",
        summary="Open Inference Protocol: classify a tensor of images",
        description="UINT8 or FP32 of shape (N, 3, H, W), or BYTES: encoded images in base64.",
        responses=_some(400, 401, 404, 413, 415, 422, 429, 503),
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    async def infer(name: str, request: Request) -> Response:
        service.tasks.entry(name)
        with service.room.share() as share:
            body = await _body(request, service, share)
            content = await service.aside(lambda: parsed(body))
            return _json(await protocol_v2.infer(service, name, content))


def _check_uploads(service: Service) -> None:
    if not service.uploads:
        raise Refusal(404, "this service takes no tasks from clients; start it with --allow-upload")


async def _body(request: Request, service: Service, share: Any) -> bytes:
    length = request.headers.get("content-length")
    return await receive(request.stream(), length, service.limits, share, draining=service.draining)


async def _images(body: bytes, request: Request, service: Service) -> Images:
    kind = request.headers.get("content-type", "")
    return await service.aside(lambda: read_images(body, kind, service.limits))


def _some(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _ERRORS[status] for status in statuses}
