"""f_out: statistics become ω, a mapping from source labels to target classes."""
