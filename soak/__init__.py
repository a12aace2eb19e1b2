"""Harnesses that attack the library for minutes: damaged input (`soak.fuzz`), kills and flipped bits."""
