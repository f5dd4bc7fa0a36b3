"""The data model: frozen values that everything else reads and makes."""
