"""`python -m bench`: every benchmark that needs no GPU."""

from bench import audit, check, lint, memory, overhead, startup

for part in (startup, overhead, memory, check, audit, lint):
    part.main()
