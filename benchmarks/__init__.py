"""Workloads, and one small module for each system that is measured."""
