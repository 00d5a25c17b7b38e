"""The systems that are measured, one module each.

A module is run as a program, by the Python of an environment of its own, and answers to `protocol`. Its head, inline
script metadata as Python's packaging standards define it, says what that environment needs and with which settings the
system is measured; the driver reads the head and never imports the module. So a module imports nothing of asyncq's,
except for `asyncq` itself and `raw`.
"""
