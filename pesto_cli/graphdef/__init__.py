"""TensorFlow graphs: exported, read, and turned into op graphs."""
