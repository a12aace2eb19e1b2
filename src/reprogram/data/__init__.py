"""A data set: classes and splits of (image, label)."""
