"""Run unmodified programs, and observe their session runs and the steps of their Keras models."""
