"""A running program, watched from its first step to its end: steps, optimizers, schedules and modes."""
