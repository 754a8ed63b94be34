"""The benchmarks: one file a claim. `python -m bench` runs all of them and writes RESULTS.md."""
