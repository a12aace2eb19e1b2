"""The configuration of a CLIP model from a file: what is on the lists here is handed on to open_clip, and nothing else is.

open_clip hands settings on to transformers and timm, some of which would load or run what they name. So a file is not
believed: its settings are known by name, their values are numbers, words and lists of such, and a name of another model
is a name and not a path.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError, nearest
from reprogram.files import read_json
from reprogram.sources.declared import check_numbers
from reprogram.sources.foreign_code import allowed
from reprogram.sources.registry import CLIP_CONFIG

_MODEL = allowed("embed_dim quick_gelu custom_text init_logit_scale init_logit_bias nonscalar_logit_scale")
_TOWER = allowed(
    "layers width heads mlp_ratio ls_init_value final_ln_after_pool pool_type output_tokens block_type qk_norm "
    "scaled_cosine_attn scale_heads scale_attn_inner scale_attn scale_fc"
)
_VISION = _TOWER | allowed(
    "head_width patch_size image_size patch_dropout attentional_pool attn_pooler_queries attn_pooler_heads no_ln_pre "
    "pos_embed_type timm_model_name timm_model_pretrained timm_pool timm_proj timm_proj_bias timm_drop "
    "timm_drop_path"
)
_TEXT = _TOWER | allowed(
    "context_length vocab_size hf_tokenizer_name tokenizer_mode embed_cls pad_id eos_id no_causal_mask proj_bias proj_type "
    "hf_model_name hf_model_pretrained hf_proj_type hf_pooler_type"
)
_MULTIMODAL = _TOWER | allowed("context_length vocab_size dim_head n_queries attn_pooler_heads")
_PREPROCESSING = allowed("size mode mean std interpolation resize_mode fill_color")
_TOKENIZER = allowed("clean strip_sep_token language additional_special_tokens")
_PARTS = {  # settings that are tables of settings themselves
    "vision_cfg": _VISION,
    "text_cfg": _TEXT,
    "multimodal_cfg": _MULTIMODAL,
    "tokenizer_kwargs": _TOKENIZER,
    "act_kwargs": frozenset({"approximate"}),
    "norm_kwargs": frozenset({"eps"}),
}
_TOWER_PARTS = frozenset({"act_kwargs", "norm_kwargs"})
_INNER_PARTS = {"vision_cfg": _TOWER_PARTS, "text_cfg": _TOWER_PARTS | {"tokenizer_kwargs"}, "multimodal_cfg": _TOWER_PARTS}
_MOST_WORDS = 8192
_HUB_NAME, _TIMM_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?"), re.compile(r"\w[\w.-]*")
_NAMES = {"hf_model_name": _HUB_NAME, "hf_tokenizer_name": _HUB_NAME, "timm_model_name": _TIMM_NAME}


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The architecture and the preprocessing in a configuration file, checked.

    Args:
        path: a folder that holds `open_clip_config.json`, or a file of that format or of open_clip's `model_configs`.
    """
    content = read_json(path / CLIP_CONFIG if path.is_dir() else path, "CLIP configuration")
    content = content if isinstance(content, dict) and "model_cfg" in content else {"model_cfg": content}
    model, preprocessing = content["model_cfg"], content.get("preprocess_cfg") or {}
    if not isinstance(model, dict) or not {"embed_dim", "vision_cfg", "text_cfg"} <= set(model):
        raise ReprogramError(
            f"{str(path)!r} is not a configuration of open_clip; it needs embed_dim, vision_cfg and text_cfg"
        )
    check_numbers(content, str(path))
    feeding = _checked(preprocessing, "preprocess_cfg", _PREPROCESSING, frozenset(), str(path))
    for key in ("mean", "std"):
        value = feeding.get(key)
        if value is not None and not (
            isinstance(value, list) and [type(item) in (int, float) for item in value] == [True] * 3
        ):
            raise _wrong(str(path), key, value, "a list of three numbers")
    if feeding.get("mode", "RGB") != "RGB":
        raise _wrong(str(path), "mode", feeding["mode"], "'RGB'")
    return checked_config(model, str(path)), feeding


def checked_config(model: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of an architecture, each of them on the lists.

    Args:
        model: what open_clip calls `model_cfg`.
        where: what the message names as the place of the settings.
    """
    checked = _checked(model, "model_cfg", _MODEL, frozenset(_INNER_PARTS), where)
    length = (checked.get("text_cfg") or {}).get("context_length", 1)
    if isinstance(length, int) and length > _MOST_WORDS:  # a table of its square is made
        raise _wrong(where, "context_length", length, f"at most {_MOST_WORDS:,}")
    if type(checked["embed_dim"]) is not int or checked["embed_dim"] < 1:
        raise _wrong(where, "embed_dim", checked["embed_dim"], "a positive whole number")
    return checked


def _checked(settings: Any, part: str, known: frozenset[str], parts: frozenset[str], where: str) -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        raise _wrong(where, part, settings, "a table of settings")
    for key, value in settings.items():
        if key in parts and value is not None:
            _checked(value, key, _PARTS[key], _INNER_PARTS.get(key, frozenset()), where)
        elif key not in known | parts:
            raise ReprogramError(
                f"{where!r} sets {key!r} in {part}, which is not handed on to open_clip, because not every setting is "
                f"safe{nearest(str(key), known)}; take it out"
            )
        elif key in _NAMES and value is not None and not (isinstance(value, str) and _NAMES[key].fullmatch(value)):
            raise _wrong(where, key, value, "the plain name of a model, no path")
        elif not _is_plain(value):
            raise _wrong(where, key, value, "a number, a word or a list of such")
    return dict(settings)


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value]
    return all(item is None or isinstance(item, (bool, int, float, str)) for item in items)


def _wrong(where: str, key: str, value: Any, expected: str) -> ReprogramError:
    return ReprogramError(f"{where!r} gives {key} as {repr(value)[:80]}, but {expected} is expected; mend it")
