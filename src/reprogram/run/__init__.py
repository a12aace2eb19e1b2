"""A run: its one schema, its defaults, its folder."""
