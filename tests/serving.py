"""Small tasks over one small model, and a real server for them on a free port of this machine."""

import http.client
import io
import json
import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image

from reprogram.mappings.certainty import measure_certainty
from reprogram.mappings.making import make_mapping
from reprogram.programs.base import make_program
from reprogram.reprogrammed import Reprogrammed
from reprogram.serve.launch import Plan, serve

CANVAS = 64


def make_task(folder, frozen, classes, *, mapping="blm", program=None, seed=0, samples=60, sets=True):
    """An artefact of random logits: what it says means nothing, and is always the same."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, frozen.k_source, generator=generator)
    targets = torch.arange(samples) % len(classes)
    made = make_mapping(mapping, frozen.labels, classes)
    if made.statistics is not None:
        made.estimate(made.count(logits, targets))
    measure_certainty(made, (logits, targets), sets=sets)
    model = Reprogrammed(make_program(**(program or {"name": "none", "canvas": CANVAS})), frozen, made)
    if program is not None:
        with torch.no_grad():
            model.program.theta.copy_(torch.rand(model.program.theta.shape, generator=generator))
    model.save(folder)
    return folder


def picture(seed=0, size=(40, 30), kind="PNG"):
    """The bytes of an image file."""
    rng = np.random.default_rng(seed)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).save(stream, kind)
    return stream.getvalue()


def bomb(side=60_000):
    """A PNG of some hundred bytes that claims billions of pixels."""

    def chunk(kind, content):
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    pixels = zlib.compress(b"\0" * 10_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def form(*files, **fields):
    """The body and the headers of a form with these (name, content) files."""
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), str(value).encode())
        for name, value in fields.items()
    ]
    for name, content in files:
        head = f'--edge\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join([*parts, b"--edge--\r\n"]), {"Content-Type": "multipart/form-data; boundary=edge"}


class Client:
    """Asks a server, with a new connection for each request."""

    def __init__(self, address, token=None):
        self.address, self.token = address, token
        self.host, self.port = urlsplit(address).hostname, urlsplit(address).port

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.request(method, path, body, {**shown, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def __call__(self, method, path, body=None, headers=None):
        if isinstance(body, dict):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
        status, _, content = self.raw(method, path, body, headers)
        return status, json.loads(content)

    def predict(self, task, *files, **fields):
        body, headers = form(*files, **fields)
        return self("POST", f"/v1/tasks/{task}/predict", body, headers)


class Running:
    """A server in a thread of this process."""

    def __init__(self, *paths, **options):
        self.plan = Plan([Path(path) for path in paths], port=0, device="cpu", **options)
        self._ready, self._server, self.error, self.address = threading.Event(), None, None, None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            serve(self.plan, self._say, self._begun)
        except BaseException as error:
            self.error = error
        self._ready.set()

    def _say(self, line):
        self.address = line.split()[-1]

    def _begun(self, server):
        self._server = server
        self._ready.set()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(120)
        if self.error is not None:
            raise self.error
        return Client(self.address, self.plan.token)

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


class Process:
    """`reprogram serve` as a person starts it."""

    def __init__(self, *arguments, log):
        self.log = Path(log)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reprogram", "serve", *map(str, arguments), "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        line = self.process.stdout.readline()
        assert line.startswith("serving "), self.log.read_text()
        self.client = Client(line.split()[-1])

    def events(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code
