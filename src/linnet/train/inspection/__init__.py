"""`inspect`: what a training is asked to tell of its inside, and how that is computed beside its steps."""
