"""The release of this package. The schema names the oldest release that works on it."""

__version__ = "0.1.0"
