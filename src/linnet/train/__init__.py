"""The one loop, its optimiser, schedule, device, checkpoints and resume."""
