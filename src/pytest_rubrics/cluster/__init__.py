"""Grades made on a Ray cluster (``--engine ray``).

The controller keeps the one store of replies and the limits, each in an actor on its own node; a worker actor on every
node makes grades, many at once on one event loop, as the local engine does. Only `replies`, `limiter` and `starting`
import Ray, and nothing imports them unless a run asks for it.
"""
