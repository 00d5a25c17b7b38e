"""A program that does to asyncq whatever can happen to it, at random, and then judges: `python -m tests.chaos`."""
