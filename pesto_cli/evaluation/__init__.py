"""What a schedule is worth: the simulator, its memory, its causes, and an independent check."""
