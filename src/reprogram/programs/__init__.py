"""f_in: programs on the input. Images in [0, 1] go in, what the frozen model eats comes out."""
