"""Campaigns: what happens to thousands of writers, trainings and files when things go wrong.

`python -m bench.campaign` runs all three, `python -m bench.campaign writers` one; `--help` tells the rest. They are no
part of the tests, which run a handful of cases of each.
"""
