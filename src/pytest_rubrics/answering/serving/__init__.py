"""Local model servers: one for a run, shared by all its processes, gone when the last of them is."""
