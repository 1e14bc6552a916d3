"""Parameters for an optimizer: layers that the model owns, a list in place of an iterator that is used up."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.device_mismatch import as_registered
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix


class EmptyOptimizerFixer(Fixer):
    rule = "empty-optimizer"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        found = evidence.operation.no_parameters if evidence.operation is not None else None
        if found is None:
            return []
        if found.layers is not None:
            return [as_registered(found.layers, scripts)]
        there = scripts.node_at(found.iterator) if found.iterator is not None else None
        if there is None:
            return []
        script, node = there
        edits = [script.insert(script.start(node), "list("), script.insert(script.end(node), ")")]
        return [scripts.fix(f"Keep the parameters in a list: `list({script.segment(node)})`.", edits)]
