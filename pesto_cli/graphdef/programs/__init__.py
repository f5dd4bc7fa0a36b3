"""Run programs in the style of TensorFlow 1 and observe their session runs."""
