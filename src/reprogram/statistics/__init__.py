"""Statistics over samples that can be streamed, merged, reduced and taken apart: all that a mapping is estimated from."""
