"""Grids of runs: a recipe becomes cells, each cell a run folder named by its content, finished runs become tables."""
