"""From folders to a running service: load the tasks, open the port, answer until a signal comes."""

import ipaddress
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reprogram.errors import ReprogramError, extra_missing
from reprogram.files.foreign import opened_text
from reprogram.serve.limits import Limits
from reprogram.serve.settings import Backend

if TYPE_CHECKING:
    from reprogram.serve.metrics import Metrics
    from reprogram.serve.server import Server
    from reprogram.serve.tasks import Tasks

TOKEN = "REPROGRAM_TOKEN"
_GRACE = 40  # seconds that an answer may take once the end has begun


@dataclass(frozen=True)
class Plan:
    """What shall be served, and how.

    Attributes:
        paths: runs, artefacts, and at most one folder of them.
        host: address to listen at.
        port: 0 for any that is free.
        token: what clients have to show.
        uploads: whether clients may add and remove tasks.
        watch: whether the folder is watched.
        limits: what is accepted.
        memory: bytes that tasks may take in memory.
        device: where to compute; torch alone knows others than the CPU.
        backend: what computes.
        prepare: whether the model is prepared for many images before the port is opened.
    """

    paths: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    uploads: bool = False
    watch: bool = True
    limits: Limits = field(default_factory=Limits)
    memory: int = 2**30
    device: str = "auto"
    backend: Backend = "torch"
    prepare: bool = True


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: str | None) -> str | None:
    """The token of a file, or of the environment; None if there is neither."""
    if file is None:
        return os.environ.get(TOKEN) or None
    with opened_text(Path(file).expanduser(), "--token", "give a file with the token in its first line") as lines:
        token = lines.readline(10_000).strip()
    if not token:
        raise ReprogramError(f"--token {file!r} is an empty file; write the token into its first line")
    return token


def serve(plan: Plan, say: Callable[[str], None], begun: "Callable[[Server], None] | None" = None) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP comes; what was accepted is answered before this returns.

    Args:
        plan: what, and how.
        say: told the address once the port is open.
        begun: told the server, whose `should_exit` ends it, for whoever runs it in a thread.
    """
    try:
        import uvicorn

        from reprogram.serve.app import make_app
        from reprogram.serve.metrics import Metrics
        from reprogram.serve.server import Protocol, Server
    except ModuleNotFoundError as error:
        raise extra_missing(str(error.name), "serve", "the service") from None
    from reprogram.serve.journal import Journal, ToJournal
    from reprogram.serve.service import Service
    from reprogram.serve.store import Store, found_tasks

    local = is_local(plan.host)
    if plan.uploads and plan.token is None and not local:
        raise ReprogramError(
            f"--allow-upload was given with --host {plan.host}, which others reach, and without a token; give --token FILE "
            f"or {TOKEN}, or listen at 127.0.0.1"
        )
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(plan.host, plan.port))
        journal, metrics = Journal(), Metrics()
        tasks = _tasks(plan, metrics, stack)
        found, folder = found_tasks(plan.paths, tasks.is_task)
        if folder is None and plan.uploads:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reprogram-uploads-")))
        if not found and not plan.watch:
            raise ReprogramError(f"{str(plan.paths[0])!r} holds no run and no artefact; give a folder that does")
        store = Store(tasks, folder, journal, watched=plan.watch)
        store.begin(found)
        if not tasks.models:
            raise ReprogramError(f"{str(plan.paths[0])!r} holds no run and no artefact, so there is no model; give one")
        service = Service(
            tasks,
            store,
            plan.limits,
            metrics,
            journal,
            token=plan.token,
            uploads=plan.uploads,
            local=local,
        )
        for note in sorted(tasks.notes):
            journal.tell("note", why=note)
        if plan.prepare:
            for way in {task.way for task in tasks.resident}:
                journal.tell("prepared", way=way.key[:12], program=way.program_name, chosen=way.prepare())
        config = uvicorn.Config(
            make_app(service),
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30,
        )
        server = Server(config, service.drain)
        library = logging.getLogger("uvicorn.error")
        library.handlers, library.propagate = [ToJournal(journal)], False
        address = f"http://{f'[{plan.host}]' if ':' in plan.host else plan.host}:{listening.getsockname()[1]}"
        journal.tell("started", address=address, tasks=len(tasks), models=tasks.models, token=service.guarded)
        if not local and not service.guarded:
            journal.tell("open", why="there is no token, so whoever reaches this address may use it")
        say(f"serving {len(tasks):,} task{'s' if len(tasks) != 1 else ''} at {address}")
        if begun is not None:
            begun(server)
        server.run(sockets=[listening])
        journal.tell("stopped", requests=server.server_state.total_requests)


def _tasks(plan: Plan, metrics: "Metrics", stack: ExitStack) -> "Tasks":
    """No tasks yet, for the backend that is wanted."""
    if plan.backend == "torch":
        from reprogram.devices import choose_device
        from reprogram.serve.torch_tasks import TorchTasks

        return TorchTasks(plan.memory, choose_device(plan.device), metrics)
    from reprogram.export.adapters import import_onnxruntime
    from reprogram.serve.onnx_tasks import OnnxTasks

    import_onnxruntime()
    return OnnxTasks(
        plan.memory, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reprogram-exports-"))), metrics
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ReprogramError(
            f"--host {host} --port {port} cannot be listened at ({error.strerror or error}); choose another port, or end "
            "whoever uses it"
        ) from None
