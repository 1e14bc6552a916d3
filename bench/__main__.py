"""`python -m bench`: every benchmark that needs no GPU."""

from bench import memory, overhead, startup

for part in (startup, overhead, memory):
    part.main()
