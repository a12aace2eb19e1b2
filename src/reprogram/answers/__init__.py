"""Files of a model's answers: read, written, fitted, predicted."""
