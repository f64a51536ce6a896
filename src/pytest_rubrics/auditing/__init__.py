"""Probes with known answers, put to a judge before its verdicts are trusted.

- ``probes``: what is asked, and what an honest judge says.
- ``running``: asks, through the same engine, gateway and cache as a run.
- ``findings``: figures, limits and verdicts; pure.
- ``labels``: verdicts of people, from a CSV file.
"""
