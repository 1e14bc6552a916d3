"""Rules of `audit`: silent bugs of models and training steps, judged from what experiments saw."""
