"""Packed with the lengths of another input: some rows lose their end, and padding is read in others."""

from __future__ import annotations

from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.observation_parts import Site


def packed_moves(lab: Lab) -> list[Move]:
    """Told by what each `pack_padded_sequence` was computed from: one sequence, and the lengths of one other."""
    measured = [(padding, padding.mask) for padding in lab.paddings if padding.mask is not None and padding.mask.tensor.dim() == 1]
    packs = [op for op in lab.trace.ops if op.name == "_pack_padded_sequence" and len(op.ins) > 1] if len(measured) > 1 else []
    for op in packs:
        data, told = (lab.trace.ancestors({seen.key}) for seen in op.ins[:2])
        sequences = [(padding, own) for padding, own in measured if _among(lab, padding.leaf, data)]
        lengths = [(padding, own) for padding, own in measured if _among(lab, own, told)]
        if len(sequences) == 1 == len(lengths) and sequences[0][1] is not lengths[0][1] and (site := lab.site(lab.trace, op)) is not None:
            return [_packed(*sequences[0], *lengths[0], site)] if sequences[0][1].tensor.tolist() != lengths[0][1].tensor.tolist() else []
    return []


def _among(lab: Lab, leaf: Leaf, keys: set[int]) -> bool:
    return lab.trace.known_key(leaf.tensor) in keys


def _packed(padding: Padding, own: Leaf, other: Padding, given: Leaf, site: Site) -> Move:
    one, two = own.tensor.tolist(), given.tensor.tolist()
    row = next(row for row, (mine, theirs) in enumerate(zip(one, two, strict=True)) if mine != theirs)
    text = f"`{padding.leaf.name}` is packed with `{given.name}`, the lengths of `{other.leaf.name}`; its own are `{own.name}`: in row {row} {two[row]} steps are taken, and it holds {one[row]}"
    return Move("padding-packed", text, "", 0.0, 0.0, site=site, mask_name=own.name, sequence=padding.leaf.name, handed=given.name, of_other=other.leaf.name)
