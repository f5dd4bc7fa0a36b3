"""Op times of real steps: `--source run`."""
