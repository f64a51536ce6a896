"""Rubric-graded LLM benchmarks as pytest cases."""

__version__ = "0.1.0"
