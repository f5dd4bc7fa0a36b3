"""pesto: a placement optimiser for TensorFlow training graphs."""

__version__ = "0.1.0"
