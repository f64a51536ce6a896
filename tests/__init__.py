"""The project's own tests. A package, so that mypy can tell modules of one name in different folders apart."""
