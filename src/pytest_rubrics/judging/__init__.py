"""From an answer to verdicts."""
