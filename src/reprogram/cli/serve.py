"""`reprogram serve`."""

from pathlib import Path

from reprogram.cli.commands import ServeCommand
from reprogram.cli.text import show
from reprogram.serve.launch import Plan, read_token
from reprogram.serve.launch import serve as run
from reprogram.serve.limits import Limits


def serve(command: ServeCommand) -> None:
    """Answer requests until a signal comes."""
    on_cpu = True
    if command.backend == "torch":
        from reprogram.devices import choose_device  # torch, which a light server does without

        on_cpu = choose_device(command.device).type == "cpu"
    limits = Limits(
        upload=command.max_upload * 2**20,
        pixels=command.max_pixels,
        images=command.max_images,
        batch=command.max_batch or (4 if on_cpu else 32),
        queue=command.queue,
    )
    plan = Plan(
        [Path(path).expanduser() for path in command.runs],
        host=command.host,
        port=command.port,
        token=read_token(command.token),
        uploads=command.allow_upload,
        watch=command.watch,
        limits=limits,
        memory=command.task_memory * 2**20,
        device=command.device,
        backend=command.backend,
    )
    run(plan, lambda line: show(line))
