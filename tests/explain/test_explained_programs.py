"""Every program an explanation shows does what is said of it, and raises the very message it explains, whatever the numbers."""

from __future__ import annotations

import re

import failing
import run_programs

from torchsleuth import errorlog
from torchsleuth.explainer import _message, explain
from torchsleuth.messages import Message, Program, Reading, all_messages, all_questions


def _programs(reading: Reading) -> list[Program]:
    shown = [reading.program, reading.remedy, *(false.program for false in reading.falsehoods)]
    return [program for program in shown if program is not None]


def _wrong(name: str, program: Program, outcome: run_programs.Outcome) -> str:
    if program.raises and program.raises not in outcome.raised:
        return f"{name}: should raise {program.raises!r}, did {outcome.raised or 'not raise'!r}\n{program.source}"
    if not program.raises and (outcome.raised or program.prints not in outcome.printed):
        return f"{name}: should print {program.prints!r}, did {(outcome.raised or outcome.printed)!r}\n{program.source}"
    return ""


def test_every_program_of_every_reader_and_question() -> None:
    shown = []
    for message in all_messages():
        found = message.found_in(message.example.split(": ", 1)[1], message.example)
        assert found is not None, f"{message.name} does not read its own example"
        reading = message.read(found)
        shown += [(message.name, program) for program in _programs(reading)]
        if reading.program is not None and not reading.program.says:
            assert reading.program.raises.split(": ")[-1] in message.example, f"{message.name} shows a program for another message"
    for question in all_questions():
        shown += [(question.name, program) for program in _programs(question.read(""))]
    done = run_programs.outcomes([program.source for _, program in shown if not program.needs_cuda])
    wrong = [text for name, program in shown if not program.needs_cuda and (text := _wrong(name, program, done[program.source]))]
    print(f"{len(shown)} programs of {len(all_messages())} messages and {len(all_questions())} questions")
    assert not wrong, "\n\n".join(wrong)


def test_false_explanations_are_refuted_by_a_program() -> None:
    for message in all_messages():
        found = message.found_in(message.example.split(": ", 1)[1], message.example)
        assert all(false.program is not None for false in message.read(found).falsehoods), message.name


def test_the_program_shown_raises_the_same_message_with_the_same_numbers() -> None:
    cases = failing.variations(2, seed=20)
    really = run_programs.outcomes([case.source for case in cases])
    hits, wrong = [], []
    for case in cases:
        raised = really[case.source].raised
        assert raised, f"did not fail:\n{case.source}"
        hit = _message(errorlog.read(raised))
        if hit is None or not isinstance(hit[0], Message) or hit[2] or hit[0].name != case.reader:
            wrong.append(f"{raised!r} is read by {hit and hit[0].name}, not by {case.reader}")
            continue
        reading = hit[0].read(hit[1])
        hits.append((case, raised, reading))
        numbers = set(re.findall(r"\d+", raised.split("Hint:")[0])) - {"0", "1"}
        missing = {n for n in numbers if not re.search(rf"\b{n}", str(explain(raised)))}
        if missing:
            wrong.append(f"the explanation of {raised!r} does not mention {sorted(missing)}")
    done = run_programs.outcomes([program.source for *_, reading in hits for program in _programs(reading)])
    for case, raised, reading in hits:
        wrong += [text for program in _programs(reading) if (text := _wrong(case.reader, program, done[program.source]))]
        if case.exact and reading.program is None:
            wrong.append(f"no program for {raised!r}")
        elif case.exact and done[reading.program.source].raised != raised:
            wrong.append(f"the program for {raised!r} raises {done[reading.program.source].raised!r}:\n{reading.program.source}")
    exact = sum(case.exact for case, *_ in hits)
    print(f"{len(cases)} failing programs, {len(hits)} read by the right reader, {exact} reproduced word for word, {len(wrong)} wrong")
    assert not wrong, "\n\n".join(wrong)
