"""What cannot be fetched is known after one try. The Hub is a server on this machine that hangs up and counts."""

import socket
import threading

import pytest
import torch

from reprogram.errors import ReprogramError
from reprogram.sources import network
from reprogram.sources.load import load_frozen

constants = pytest.importorskip("huggingface_hub.constants")


class Silent:
    """Takes calls, counts them and hangs up."""

    def __init__(self):
        self.calls, self.socket = 0, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.calls += 1
            connection.close()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


@pytest.fixture
def silent(monkeypatch, tmp_path):
    """The Hub's place, taken by a server that answers nothing; the folders of what was fetched before are empty."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Silent()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    yield server
    server.close()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm:test_resnet", {}),
        ("hf:nobody/no-model-of-tests", {}),
        ("openclip:ViT-B-32/laion2b_s34b_b79k", {"classes": ["cat"], "templates": "default"}),
    ],
)
def test_a_hub_that_does_not_answer_is_asked_once(silent, name, options):
    with pytest.raises(ReprogramError, match=rf"{name} could not be fetched .*\(127.0.0.1:\d+ does not answer\); connect"):
        load_frozen(name, **options)
    assert silent.calls == 1
    assert constants.HF_HUB_OFFLINE is False


def test_torchvisions_server_is_asked_once(silent, monkeypatch):
    entry = network.importlib.import_module("torchvision").models.get_model_weights("squeezenet1_1").DEFAULT
    monkeypatch.setattr(type(entry), "url", property(lambda _: f"{silent.url}/weights.pth"))
    with pytest.raises(ReprogramError, match=r"trained weights of torchvision:squeezenet1_1 could not be .*does not answer"):
        load_frozen("torchvision:squeezenet1_1")
    assert silent.calls == 1


def test_a_wrong_name_stays_a_wrong_name_without_a_network(silent):
    with pytest.raises(ReprogramError, match=r"nonsense"):
        load_frozen("timm:test_resnet.nonsense")


def test_nobody_is_asked_for_what_is_not_fetched(silent):
    load_frozen("timm:test_resnet", pretrained=False)
    load_frozen("openclip:RN50", pretrained=False, classes=["cat"], templates="default")
    assert silent.calls == 0


def test_nobody_is_asked_where_the_user_has_closed_the_hub(silent, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ReprogramError, match="timm:test_resnet could not be fetched"):
        load_frozen("timm:test_resnet")
    assert silent.calls == 0
    assert constants.HF_HUB_OFFLINE is True


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Oh"])
def test_any_answer_is_a_sign_of_life(status, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert network.reachable(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_a_closed_port_is_none():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not network.reachable(f"http://127.0.0.1:{port}")
