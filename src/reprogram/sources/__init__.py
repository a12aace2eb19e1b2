"""f_pre: trained classifiers that stay exactly as they are, and where they come from."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.sources.black_box import BlackBox as BlackBox
    from reprogram.sources.frozen import Frozen as Frozen
    from reprogram.sources.load import describe_model as describe_model
    from reprogram.sources.load import list_models as list_models
    from reprogram.sources.load import load_frozen as load_frozen
    from reprogram.sources.load import load_text_encoder as load_text_encoder
    from reprogram.sources.registry import SOURCES as SOURCES
    from reprogram.sources.registry import Source as Source
    from reprogram.sources.registry import register_source as register_source
    from reprogram.sources.texts import Texts as Texts
    from reprogram.sources.vision_language import TextEncoder as TextEncoder
    from reprogram.sources.vision_language import VisionLanguage as VisionLanguage

_WHERE = {
    "BlackBox": "reprogram.sources.black_box",
    "describe_model": "reprogram.sources.load",
    "Frozen": "reprogram.sources.frozen",
    "list_models": "reprogram.sources.load",
    "load_frozen": "reprogram.sources.load",
    "load_text_encoder": "reprogram.sources.load",
    "register_source": "reprogram.sources.registry",
    "Source": "reprogram.sources.registry",
    "SOURCES": "reprogram.sources.registry",
    "TextEncoder": "reprogram.sources.vision_language",
    "Texts": "reprogram.sources.texts",
    "VisionLanguage": "reprogram.sources.vision_language",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
