"""What a device computes in."""

import pytest
import torch

from reprogram.devices import at_hand, in_hardware, precision_note

CPU = torch.device("cpu")


@pytest.mark.parametrize(("amx", "avx512", "expected"), [(False, False, False), (True, False, True), (False, True, True)])
def test_bf16_only_where_the_processor_has_it(monkeypatch, amx, avx512, expected):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512, raising=False)
    assert in_hardware(CPU, "bf16") is expected
    assert at_hand(CPU, "bf16") == ("bf16" if expected else "fp32")
    assert (precision_note(CPU, "bf16") is None) is expected
    assert in_hardware(CPU, "fp32")
    assert not in_hardware(torch.device("mps"), "bf16")


@pytest.mark.parametrize(
    ("asked", "expected"), [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", True), ("ALL", True), ("", True)]
)
@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_what_the_user_has_forbidden_is_not_there(monkeypatch, name, asked, expected):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    monkeypatch.setenv(name, asked)
    assert in_hardware(CPU, "bf16") is expected


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_of_a_gpu_its_generation_decides(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert in_hardware(torch.device("cuda"), "bf16") is expected
    assert in_hardware(torch.device("cuda"), "fp16")


def test_fp16_is_for_accelerators():
    assert at_hand(CPU, "fp16") == "fp32"
    assert "trained and measured in fp16, which this cpu does not have" in precision_note(CPU, "fp16")
