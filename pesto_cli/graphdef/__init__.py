"""Export TensorFlow graphs, read them, and convert them to op graphs."""
