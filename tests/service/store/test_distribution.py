"""Every table can be distributed by the campaign, as docs/operating.md says for Citus."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import UniqueConstraint

from service.store import tables
from tests.documents import ROOT

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
# Small tables of which every node has a copy; decisions and outcomes write to none of them but messages of webhooks.
COPIED = set(re.findall(r"create_reference_table\(.(\w+).\)", PAGE))
DISTRIBUTED = re.findall(r"create_distributed_table\('(\w+)', '(\w+)'", PAGE)
TABLES = sorted(set(tables.metadata.tables) - COPIED)


def test_the_page_names_every_table_once():
    assert sorted([*COPIED, *(name for name, _ in DISTRIBUTED)]) == sorted(tables.metadata.tables)
    assert {column for _, column in DISTRIBUTED} == {"campaign"}


def test_rows_of_decisions_and_outcomes_are_distributed():
    assert {"campaign_state", "account", "window_account", "decision", "hold", "outcome"} <= set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_key_and_unique_index_of_a_distributed_table_has_the_campaign(name):
    table = tables.metadata.tables[name]
    assert not table.c.campaign.nullable
    unique = [each.columns for each in table.constraints if isinstance(each, UniqueConstraint)]
    unique += [index.columns for index in table.indexes if index.unique]
    for columns in (table.primary_key.columns, *unique):
        assert "campaign" in columns


@pytest.mark.parametrize("name", TABLES)
def test_every_foreign_key_of_a_distributed_table_stays_with_the_campaign_or_leads_to_a_copied_table(name):
    for key in tables.metadata.tables[name].foreign_key_constraints:
        pairs = {(element.parent.name, element.column.name) for element in key.elements}
        assert key.referred_table.name in COPIED or ("campaign", "campaign") in pairs


def test_copied_tables_have_no_foreign_key_to_distributed_ones():
    for name in COPIED:
        assert {key.referred_table.name for key in tables.metadata.tables[name].foreign_key_constraints} <= COPIED
