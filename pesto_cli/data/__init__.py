"""The data model: frozen values that all other packages read and create."""
