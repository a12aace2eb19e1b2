"""A mapping, a program, a model source, a data format and a shard format that `reprogram` does not have."""
