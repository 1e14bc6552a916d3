"""The audit: silent bugs of models and training steps, found by experiment. `session.audit` and `live.StepWatch` are the ways in."""
