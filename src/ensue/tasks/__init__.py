"""Each task joins its reader, model, objective and measure, and nothing else."""
