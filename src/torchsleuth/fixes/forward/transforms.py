"""`vmap` told what it asked for: how random numbers are drawn, and which dimension of which argument counts the samples."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Script, Scripts, called
from torchsleuth.model import Diagnosis, Edit, Fix


class FunctionTransformFixer(Fixer):
    rule = "function-transform"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        operation = evidence.operation
        mapped = operation.mapped if operation is not None else None
        found = scripts.node_at(mapped.made.place) if mapped is not None and mapped.made is not None else None
        if operation is None or mapped is None or found is None or not isinstance(found[1], ast.Call) or called(found[1]) != "vmap" or not found[1].args:
            return []
        script, call = found
        if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(argument, ast.Starred) for argument in call.args):
            return []
        if "randomness error mode" in operation.message:
            meanings = {"different": "Each sample draws random numbers of its own.", "same": "All samples get the same random numbers."}
            return [
                scripts.fix(f'Say how random numbers are drawn: `randomness="{choice}"`.', _given(script, call, "randomness", 3, f'"{choice}"'), meaning, safe=False)
                for choice, meaning in meanings.items()
            ]
        if mapped.within or not mapped.fitting:
            return []
        meaning = "What is no tensor is the same for all samples."
        return [scripts.fix(f"An entry for each argument: `in_dims={mapped.fitting}`.", _given(script, call, "in_dims", 1, mapped.fitting), meaning)]


def _given(script: Script, call: ast.Call, name: str, position: int, text: str) -> list[Edit]:
    """The argument with another value, or added."""
    own = next((keyword.value for keyword in call.keywords if keyword.arg == name), call.args[position] if len(call.args) > position else None)
    if own is not None:
        return [script.replace(own, text)]
    last = max(script.end(node) for node in [*call.args, *(keyword.value for keyword in call.keywords)])
    return [script.insert(last, f", {name}={text}")]
