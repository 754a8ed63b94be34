"""Views of runs for people: charts and numbers."""
