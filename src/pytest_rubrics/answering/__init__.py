"""From a task to an answer."""
