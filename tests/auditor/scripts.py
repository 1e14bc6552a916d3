"""Runs a script under `StepWatch` in this very process, which is quicker than the whole command."""

from __future__ import annotations

import runpy

from torchsleuth.auditor.program.live import StepWatch
from torchsleuth.model import Outcome, Report


def audit_script(script: str) -> tuple[Report, int]:
    """What is found in its first training step and the later ones, and the script's own exit status."""
    watch, status = StepWatch(60.0), 0
    watch.start()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except Exception:
        watch.abandon()
        raise
    parts = watch.finish()
    return Report("audit", Outcome.FINDINGS if parts.diagnoses else Outcome.OK, None, parts.diagnoses, parts.notes), status
