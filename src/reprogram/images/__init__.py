"""Pictures as tensors: decode, resize, random views."""
