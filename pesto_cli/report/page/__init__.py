"""An HTML page of one or several schedules that works offline."""
