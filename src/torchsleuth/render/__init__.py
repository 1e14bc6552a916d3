"""Layout only: each module turns a `Report` into one format. Wording lives in the rules."""
