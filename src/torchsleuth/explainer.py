"""Answers a torch message, a question or a rule's name, from the rules' pages and the readers of messages. No torch here.

Order: a rule's name; a message whose numbers can be read; a known question; a fragment of a message; a rule that claims the
message; and where nothing fits, it says so and names the rules that sound nearest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from torchsleuth import errorlog
from torchsleuth.errorlog import ErrorLog
from torchsleuth.messages import Falsehood, Found, Message, Program, Question, Reading, all_messages, all_questions
from torchsleuth.model_explanation import Block, Code, Entry, Explanation, Section, Text
from torchsleuth.pages import RulePage, all_pages
from torchsleuth.rule import Page


def explain(text: str = "") -> Explanation:
    """The answer to a message, a question, a log or a rule's name; without text, the list of rules."""
    text = text.strip()
    if not text:
        return _listing()
    name = _as_name(text[:_TYPED])
    rule = _named_rule(name)
    if rule is not None:
        return _rule_page(rule)
    log = errorlog.read(text)
    if (hit := _message(log)) is not None:
        return _answer(*hit, log)
    message = next((m for m in all_messages() if m.name == name), None)
    if message is not None:
        return _answer(message, _example(message, text), True, log)
    return _unknown(text, log)


def _as_name(text: str) -> str:
    return re.sub(r"[\s_]+", "-", text.strip().lower())


# ---------------------------------------------------------------------------------------------
# Which message is it?


def _message(log: ErrorLog) -> tuple[Message | Question | RulePage, Found | None, bool] | None:
    """The reader (or rule) to ask, what it found, and whether an example stands in for numbers the text does not give."""
    types = {raised.message: raised.type for raised in log.raised}
    texts = [raised.message for raised in reversed(log.raised)]
    for text in dict.fromkeys((*texts, log.unread)):
        # Messages are wrapped where they are pasted: where the text as it stands does not match, it is tried on one line.
        forms = dict.fromkeys((text, " ".join(text.split()))) if len(text) < 5_000 else (text,)
        hits = [(message, found) for message in all_messages() if (found := _found(message, forms, types.get(text, ""), log))]
        if hits:
            message, found = max(hits, key=lambda hit: hit[1].match.end() - hit[1].match.start())
            return message, found, False
    # What follows goes by words, so it is for what a person typed; a long log has every word somewhere.
    typed = len(log.text) <= _TYPED and not log.frames
    for question in all_questions():
        if typed and not log.raised and question.asked_in(log.text):
            return question, None, False
    asked = typed and (not log.raised or "?" in log.text)
    for text in [log.text] if asked else texts:
        covered, _, message = max(((message.hinted_in(text), n, message) for n, message in enumerate(all_messages())), key=lambda hit: hit[:2])
        # A message that only shares a few words with a known one is another message.
        if covered and (asked or covered >= _ENOUGH * len(_C_LOCATION.sub("", text.split("\n")[0]))):
            return message, _example(message, log.text), True
    for raised in reversed(log.raised):
        rules = _claiming(f"{raised.type}: {raised.message}")
        if rules:
            return rules[0], None, False
    return None


# How much of a message's first line a fragment must cover to pass for the message with its numbers cut off.
_ENOUGH = 0.4
_C_LOCATION = re.compile(r"\s+at /\S+:\d+\s*$")  # earlier releases say where in torch's own source: no part of the message
_TYPED = 500


def _found(message: Message, forms: Iterable[str], type_name: str, log: ErrorLog) -> Found | None:
    found = (message.found_in(form, log.text, log.during_backward, type_name) for form in forms)
    return next((hit for hit in found if hit is not None), None)


def _example(message: Message, text: str) -> Found:
    found = message.found_in(message.example.split(": ", 1)[1], text)
    assert found is not None, message.name
    return found


def _claiming(text: str) -> list[RulePage]:
    """Rules whose own patterns claim this "Type: message", the most general one first.

    A rule of high priority (a broadcast error *in an attention mask*) is convicted by evidence that a bare message does
    not have; only the fall-back for everything stands behind all others.
    """
    return sorted((rule for rule in all_pages() if rule.claims(text)), key=lambda rule: (rule.priority < 0, rule.priority))


def _rule_of(source: Message | Question, found: Found | None) -> RulePage | None:
    if isinstance(source, Message) and found is not None:
        claiming = _claiming(f"{source.raises}: {found.match[0]}") or _claiming(f"{source.raises}: {found.match.string}") or _claiming(source.example)
        if claiming:
            return claiming[0]
    return _named_rule(source.rule)


def _named_rule(name: str) -> RulePage | None:
    """The rule of this name; where a crash and the linter know the same offence, the crash's, whose page tells more."""
    return next((rule for rule in all_pages() if rule.name == name), None)


# ---------------------------------------------------------------------------------------------
# Putting an answer together


def _answer(source: Message | Question | RulePage, found: Found | None, by_example: bool, log: ErrorLog) -> Explanation:
    if isinstance(source, RulePage):
        page = _rule_page(source)
        return Explanation(True, page.title, page.rule, (*_where(log), *page.sections))
    if isinstance(source, Question):
        reading = source.read(log.text)
    else:
        assert found is not None
        try:
            reading = source.read(found)
        except (IndexError, KeyError, ValueError, ZeroDivisionError):
            # Numbers that contradict one another (dimension 3 of a tensor with two) are not torch's: a message retyped or shortened.
            found, by_example = _example(source, log.text), True
            reading = source.read(found)
    rule = _named_rule(reading.rule) if reading.rule else _rule_of(source, found)
    notes = []
    meaning = [Text(reading.meaning)]
    title = reading.title
    if by_example and isinstance(source, Message) and re.search(r"\d", source.example) and not reading.rule:
        title = rule.page.summary if rule else f"The message is known: {_first_line(source.example)}"
        meaning.insert(0, Text(f"The text gives no numbers that fit, so this is read as an example: {_first_line(source.example)}"))
    sections = [
        *_where(log),
        Section("What it says", tuple(meaning)),
        Section("True causes, the most likely first", tuple(Text(cause, number) for number, cause in enumerate(reading.causes, 1))),
        Section("A program that shows it", tuple(_program(reading.program))),
        Section("What to change", (*(Text(fix) for fix in reading.fixes), *_program(reading.remedy))),
        Section("Often said, and not true", tuple(_falsehoods(reading, rule))),
    ]
    if rule is not None:
        page = rule.page
        sections.append(Section(f"About {rule.name} in general", tuple(_blocks(page.section("Why")))))
        if reading.program is None:
            sections = [Section(s.heading, tuple(_blocks(page.section("Example")))) if s.heading.startswith("A program") else s for s in sections]
        notes.append(f"`torchsleuth explain {rule.name}` prints the whole page of this rule.")
    return Explanation(True, title, rule.name if rule else "", tuple(s for s in sections if s.blocks), notes=tuple(notes))


def _where(log: ErrorLog) -> list[Section]:
    """What the text itself tells about the place, where it is more than the message."""
    notes = tuple(Text(note) for note in _notes(log))
    return [Section("Where", notes)] if notes else []


def _notes(log: ErrorLog) -> Iterator[str]:
    frame = log.user_frame
    if frame is not None:
        source = f": `{frame.source}`" if frame.source else ""
        place = f"{frame.file}, line {frame.line}{', in ' + frame.function if frame.function else ''}{source}"
        if log.in_custom_backward:
            yield f"Your traceback: raised while backward ran, in your own code below it (a `backward` or a hook): {place}"
        elif log.during_backward:
            yield f"Your traceback: raised while backward ran, called from {place}"
        else:
            yield f"Your traceback: the innermost line that is not a library's is {place}"
    yield from log.notes


def _program(program: Program | None) -> Iterator[Block]:
    if program is not None:
        yield Text(program.says or ("This raises it:" if program.raises else "This runs" + (f" and prints {program.prints}:" if program.prints else ":")))
        yield Code(program.source)


def _falsehoods(reading: Reading, rule: RulePage | None) -> Iterator[Block]:
    for false in reading.falsehoods:
        yield from _falsehood(false)
    # A rule of the forward pass covers many messages, and what is wrongly said about one need not concern another.
    if rule is None or (reading.falsehoods and _family(rule) != _FAMILIES["backward"]):
        return
    told = [_words(false.claim) for false in reading.falsehoods]
    for claim, blocks in _claims(rule.page):
        if not any(_overlap(_words(claim), other) > 0.5 for other in told):
            yield from blocks


def _falsehood(false: Falsehood) -> Iterator[Block]:
    yield Text(f"“{false.claim}”", claim=True)
    yield Text(false.truth)
    if false.program is not None:
        does = "raises" if false.program.raises else "runs"
        message = f" {_first_line(false.program.raises).rstrip('.')}" if false.program.raises else f" and prints {false.program.prints}"
        yield Text(false.program.says or f"This {does}{message}:")
        yield Code(false.program.source)


def _claims(page: Page) -> Iterator[tuple[str, list[Block]]]:
    """The falsehoods of a rule's page: each claim with all that is said about it."""
    blocks: list[Block] = []
    claim = ""
    for block in _blocks(page.section("Common false explanations")):
        if isinstance(block, Text) and (quoted := re.match(r'["“](.+?)["”]\s*', block.text)):
            if claim:
                yield claim, blocks
            claim = quoted[1]
            rest = block.text[quoted.end() :]
            blocks = [Text(f"“{claim}”", claim=True)] + ([Text(rest)] if rest else [])
        else:
            blocks.append(block)
            claim = claim or getattr(block, "text", "")
    if blocks:
        yield claim, blocks


def _rule_page(rule: RulePage) -> Explanation:
    page = rule.page
    sections = []
    for heading, text in page.sections:
        blocks = tuple(_blocks(text))
        if heading == "Common false explanations":
            blocks = tuple(block for _, said in _claims(page) for block in said)
        sections.append(Section(heading, blocks))
    return Explanation(True, page.summary, rule.name, tuple(sections))


def _blocks(text: str) -> Iterator[Block]:
    """Paragraphs and indented programs of a page, in order."""
    paragraph: list[str] = []
    code: list[str] = []
    for line in [*text.splitlines(), "end"]:
        if code and (line.startswith("    ") or not line.strip()):
            code.append(line[4:])
            continue
        if code:
            yield Code("\n".join(code).rstrip() + "\n")
            code = []
        if line.startswith("    ") and not paragraph:
            code.append(line[4:])
        elif line.strip() and line != "end":
            paragraph.append(line)
        elif paragraph:
            yield from _paragraphs(paragraph)
            paragraph = []
    if paragraph:
        yield from _paragraphs(paragraph)


def _paragraphs(lines: list[str]) -> Iterator[Text]:
    """One paragraph, or the items of a list."""
    items: list[list[str]] = []
    for line in lines:
        if re.match(r"\s*(?:[-*]|\d+\.)\s", line) or not items:
            items.append([])
        items[-1].append(line.strip())
    yield from (Text(" ".join(item)) for item in items)


# ---------------------------------------------------------------------------------------------
# Lists, and what to say when nothing fits

_FAMILIES = {
    "backward": "failures in backward",
    "forward": "failures in the forward pass or the loss",
    "source": "found in source by `torchsleuth lint`",
    "function": "custom Functions, found by `torchsleuth check`",
    "training": "training, found by `torchsleuth audit`",
}


def paged_rules() -> list[RulePage]:
    """One rule per name: those that have a page of their own."""
    return [rule for rule in all_pages() if _named_rule(rule.name) is rule]


def listed_rules() -> list[tuple[str, list[RulePage]]]:
    """All rules, grouped by where they are found."""
    groups: dict[str, list[RulePage]] = {}
    for rule in all_pages():
        groups.setdefault(_family(rule), []).append(rule)
    order = [*_FAMILIES.values(), *sorted(set(groups) - set(_FAMILIES.values()))]
    return [(heading, groups[heading]) for heading in order if heading in groups]


def _listing() -> Explanation:
    return Explanation(
        True,
        f"{len(all_pages())} rules, and {len(all_messages())} messages of torch that are read with their numbers",
        entries=tuple((heading, tuple(Entry(rule.name, rule.page.summary) for rule in rules)) for heading, rules in listed_rules()),
        notes=("`torchsleuth explain RULE`, or the error message in quotes, or a log on standard input.",),
    )


def _family(rule: RulePage) -> str:
    return _FAMILIES.get(rule.family, rule.family)


def _unknown(text: str, log: ErrorLog) -> Explanation:
    what = "this message" if log.raised else "this"
    return Explanation(
        False,
        f"torchsleuth has no answer to {what}",
        entries=tuple((heading, entries) for heading, entries in (("what sounds nearest", tuple(_nearest(text))),) if entries),
        notes=(
            *_notes(log),
            "Nothing above is claimed to be the cause. `torchsleuth run your_script.py` watches the program and reports what it sees when it fails.",
        ),
    )


_COMMON = frozenset(
    "a an the of to in is it and or for on with not this that be by from are was as at does do how what why when which my your i torch pytorch tensor tensors error "
    "runtimeerror valueerror typeerror get got fix cause causes causing during can no expected before after new one be been has have had but than should must given give gives "
    "starting start finished prior into out up its when there where use used using say says write writing training train loop object attribute trying create".split()
)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[a-z_]{2,}", text.lower().replace("-", " ")) if word not in _COMMON)


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0


def _nearest(text: str, most: int = 5) -> Iterable[Entry]:
    """Rules and messages that share rare words with the text, or whose name is nearly it."""
    candidates = {rule.name: (rule.page.summary, f"{rule.name} {rule.page.summary} {rule.page.section('What happened')}") for rule in all_pages()}
    for message in all_messages():
        candidates.setdefault(message.name, (_first_line(message.example), message.example))
    bags = {name: _words(described) for name, (_, described) in candidates.items()}
    rarity: dict[str, float] = {}
    for bag in bags.values():
        for word in bag:
            rarity[word] = rarity.get(word, 0) + 1
    asked = _words(text[-_TYPED:])
    scores = {name: sum(1 / rarity[word] for word in asked & bag) for name, bag in bags.items()}
    if len(text) <= _TYPED:
        for close in difflib.get_close_matches(_as_name(text), list(candidates), n=3, cutoff=0.6):
            scores[close] += 10
    best = sorted((name for name, score in scores.items() if score >= 0.2), key=lambda name: -scores[name])[:most]
    return [Entry(name, candidates[name][0]) for name in best]


def _first_line(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
