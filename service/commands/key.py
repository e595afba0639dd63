"""`cbwk key`: API keys, in the database itself, or by the running service that uses a SQLite file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.commands.console import AsJson, DatabaseUrl, echo_json, open_database, print_table
from service.commands.http import URL_DEFAULT, Url, call, list_all, path_segment, service_client
from service.limits import KEY_RATE_MAX, KEY_RATE_MIN
from service.store.errors import DatabaseInUse

if TYPE_CHECKING:
    import httpx

app = typer.Typer(
    rich_markup_mode=None,
    help="Create, list and revoke API keys, in the database itself. If a running service uses the SQLite file, that "
    "service does it: CBWK_URL, CBWK_API_KEY.",
)

KEYS_MAX = 1_000_000


@contextmanager
def _running_service(url: str, error: DatabaseInUse) -> Iterator["httpx.Client"]:
    """Opens a client of the service that uses the file; stderr says so."""
    typer.echo(f"cbwk: {error}; asking the service at {url}", err=True)
    with service_client(url) as client:
        yield client


@app.command("create")
def key_create(
    name: Annotated[str, typer.Option(help="Name of the key's owner.")],
    role: Annotated[Literal["decider", "reader", "admin"], typer.Option(help="What the key may do.")],
    campaign: Annotated[
        list[str] | None, typer.Option(help="A campaign the key is for; may be given several times.  [default: all]")
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(min=KEY_RATE_MIN, max=KEY_RATE_MAX, help="More are answered with 429.  [default: any number]"),
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a key and show it once."""
    from service.store import keys

    try:
        with open_database(database_url) as database, database.write() as connection:
            now, rate = database.now_micros(connection), requests_per_second
            key_id, text = keys.create_key(
                connection, name, role, campaign or None, now, requests_per_second=rate, actor="cbwk key"
            )
    except DatabaseInUse as error:
        body = {"name": name, "role": role, "campaigns": campaign or None, "requests_per_second": requests_per_second}
        with _running_service(url, error) as client:
            answer = call(client, "POST", "/admin/keys", json=body)
        key_id, text = answer["id"], answer["key"]
    if as_json:
        echo_json({"id": key_id, "key": text})
    else:
        typer.echo(f"{key_id}, shown only once:", err=True)
        typer.echo(text)


@app.command("list")
def key_list(as_json: AsJson = False, database_url: DatabaseUrl = None, url: Url = URL_DEFAULT) -> None:
    """List all keys, revoked ones included, without their text."""
    from service import reads

    try:
        with open_database(database_url) as database, database.read() as connection:
            found = reads.keys(connection, limit=KEYS_MAX)["items"]
    except DatabaseInUse as error:
        with _running_service(url, error) as client:
            found = list(list_all(client, "/admin/keys"))
    if as_json:
        echo_json(found)
        return
    rows = []
    for key in found:
        campaigns = "all" if key["campaigns"] is None else ", ".join(key["campaigns"])
        days = [key["created_at"][:10], (key["revoked_at"] or "")[:10]]
        rate = key["requests_per_second"]
        rows.append([key["id"], key["name"], key["role"], campaigns, "any" if rate is None else f"{rate:g}/s", *days])
    heads = ["id", "name", "role", "campaigns", "requests", "created", "revoked"]
    print_table(heads, rows, texts=len(heads))


@app.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(help="As `cbwk key list` shows it.")],
    database_url: DatabaseUrl = None,
    url: Url = URL_DEFAULT,
) -> None:
    """Revoke a key; servers accept it for at most three more seconds."""
    from service.store import keys

    try:
        with open_database(database_url) as database, database.write() as connection:
            keys.revoke_key(connection, key_id, database.now_micros(connection), actor="cbwk key")
    except DatabaseInUse as error:
        with _running_service(url, error) as client:
            call(client, "DELETE", f"/admin/keys/{path_segment(key_id)}")
    typer.echo(f"{key_id} is revoked")
