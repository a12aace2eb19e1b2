"""`reprogram <verb>`: words for people, nothing else."""
