"""Statistics of benchmark scores: pure calculation, standard library only.

Every run ends in a summary, and a replay has to be quick, so nothing here imports NumPy or SciPy: importing
``scipy.special`` alone costs more than all the intervals of a run. Nothing is drawn at random, so the same scores give
the same figures to the last digit.

- ``intervals``: means, pass rates and macro means with their intervals; what exclusions could change.
- ``comparison``: two runs on the same tasks.
- ``repeats``: several answers to a task, several readings of an answer.
- ``agreement``: judges against each other and against labels.
- ``distributions``: the few distribution functions that these need.

``docs/statistics.md`` says in plain words which figure is used when, and why.
"""
