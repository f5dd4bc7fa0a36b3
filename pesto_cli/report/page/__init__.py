"""One schedule or several as a page that needs nothing but a browser."""
