"""Pages read from source text are those of the imported rules."""

from __future__ import annotations

from torchsleuth.pages import all_pages
from torchsleuth.rule import CrashRule, all_rules


def test_pages_read_from_source_equal_those_of_the_imported_rules() -> None:
    imported = {
        (type(rule).__module__, rule.name): (rule.page(), rule.messages if isinstance(rule, CrashRule) else (), getattr(rule, "priority", 0)) for rule in all_rules()
    }
    read = {(page.module, page.name): (page.page, page.messages, page.priority) for page in all_pages()}
    assert read == imported
