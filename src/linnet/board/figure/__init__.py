"""Pictures of runs: charts as scenes of plain shapes, and what writes scenes as files. No terminal is needed for it."""
