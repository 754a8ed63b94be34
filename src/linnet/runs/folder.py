"""The names of what lies in a run folder."""

EVENTS = "events.jsonl"
MANIFEST = "run.json"
WEIGHTS = "weights"
ARTIFACTS = "artifacts"
CACHE = ".cache"
