"""Programs in the style of TensorFlow 1, watched as they run."""
