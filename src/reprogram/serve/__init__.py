"""An HTTP service: many tasks over one frozen model in memory; `reprogram serve` starts it."""
