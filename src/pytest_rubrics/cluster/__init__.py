"""Grades made on a Ray cluster (``--engine ray``).

The controller keeps the one store of replies, the limits and the pace, in actors on its own node; a worker actor on
every node makes grades, many at once on one event loop, as the local engine does. Ray is imported only where a run asks
for it.
"""
