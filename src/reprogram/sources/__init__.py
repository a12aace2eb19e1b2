"""f_pre: trained classifiers that stay exactly as they are, and where they come from."""
