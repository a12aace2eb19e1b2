"""The same numbers from a frozen network, faster."""
