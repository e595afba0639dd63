"""Keeps the rows that `cbwk prune` deletes, so that the checker sees the whole log.

Triggers of the test copy each deleted row into the schema `pruned`. The views of the schema `whole` have all rows.
"""

from __future__ import annotations

from urllib.parse import quote

import psycopg

_KEPT = ("decision", "outcome")
_FUNCTION = """
CREATE FUNCTION pruned.keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO pruned.%I SELECT ($1).*', TG_TABLE_NAME) USING OLD;
    RETURN NULL;
END $$
"""


def archive_pruned(url: str) -> str:
    """Keep every decision and outcome that is deleted from now on; return the URL under which the log is whole."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA pruned")
        connection.execute("CREATE SCHEMA whole")
        connection.execute(_FUNCTION)
        for table in _KEPT:
            connection.execute(f"CREATE TABLE pruned.{table} (LIKE public.{table})")
            connection.execute(
                f"CREATE VIEW whole.{table} AS"
                f" SELECT * FROM public.{table} UNION ALL SELECT * FROM pruned.{table}"
            )  # fmt: skip
            connection.execute(
                f"CREATE TRIGGER keep AFTER DELETE ON public.{table} FOR EACH ROW EXECUTE FUNCTION pruned.keep()"
            )
    return f"{url}&options={quote('-c search_path=whole,public')}"


def pruned_decisions(url: str) -> set[tuple[str, str]]:
    """Return the campaign and the id of each decision that was deleted."""
    with psycopg.connect(url) as connection:
        query = "SELECT c.id, d.decision_id FROM pruned.decision d JOIN campaign c ON c.number = d.campaign"
        return {(campaign, decision) for campaign, decision in connection.execute(query)}
