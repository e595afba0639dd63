"""The configuration of HAProxy for replicas: `deploy/haproxy.cfg`, and what `cbwk serve --print-haproxy` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

BIND: Final = "127.0.0.1:8080"
LOCAL: Final = "127.0.0.1:8404"
SOCKET: Final = "/var/lib/haproxy/cbwk.sock"

_TEMPLATE = """\
# HAProxy 2.6 or newer before replicas of cbwk. A campaign goes to one replica, by the header X-Campaign-Id or the body.
# That only makes it fast: every replica serves every campaign of its cell.

global
    log stderr format raw local0 warning
    maxconn 4000
    # To drain a replica: echo "set server {first} state drain" | socat stdio {socket}
    stats socket {socket} mode 600 level admin

defaults
    mode http
    log global
    timeout connect 1s
    timeout http-request 10s
    timeout client 30s
    timeout http-keep-alive 10s
    timeout queue 1s
    timeout server 35s # changes by administrators may take 30 s
    timeout check 700ms # two of them: a replica that hangs is left within two seconds
{errors}
{resolvers}
frontend cbwk
    bind {bind}
    option http-buffer-request
    acl named var(txn.campaign) -m found
    http-request set-var(txn.campaign) req.hdr(X-Campaign-Id) if {{ req.hdr(X-Campaign-Id) -m found }}
    http-request set-var(txn.campaign) req.body,json_query('$.campaign_id') unless named
    http-request set-var(txn.campaign) req.body,json_query('$.items[0].campaign_id') unless named
    http-request set-var(txn.campaign) req.body,json_query('$.id') if {{ path /campaigns /portfolios }}
    http-request set-var(txn.campaign) path,field(3,/),url_dec if {{ path_beg /campaigns/ /portfolios/ }}
    http-request set-var(txn.campaign) path,field(4,/),url_dec if {{ path_beg /admin/campaigns/ /admin/portfolios/ }}
{choice}
{backends}
frontend local
    bind {local}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    stats enable
    stats uri /
"""
_NOT_KNOWN = "it is not known whether the request was done; with its decision_id it is safe to repeat"
# What HAProxy says itself, in the form of the service's problems. The type is not one of the service, whose types say
# more: clients take them as a sign of life of the replica.
_ERRORS = {
    408: ("Request Timeout", "the request did not arrive in time; nothing was done"),
    502: ("Bad Gateway", f"the replica ended before it answered; {_NOT_KNOWN}"),
    503: ("Service Unavailable", f"no replica is ready (is the database away?), or it has just failed; {_NOT_KNOWN}"),
    504: ("Gateway Timeout", f"the replica did not answer in time; {_NOT_KNOWN}"),
}
_RESOLVERS = """
resolvers system
    parse-resolv-conf
    hold valid 5s
"""
_CELLS = """\
    # The cell of the campaign, else of its portfolio (the part before the colon), else the default.
    acl placed var(txn.cell) -m found
    http-request set-var(txn.cell) var(txn.campaign),map({file})
    http-request set-var(txn.cell) var(txn.campaign),field(1,:),concat(:),map({file}) unless placed
    http-request set-var(txn.cell) str(*),map({file}) unless placed
    use_backend %[var(txn.cell)]
"""
_BACKEND = """\
backend {name}
    balance hash var(txn.campaign)
    hash-type consistent
    # Only what was certainly not sent goes to another replica: without a decision_id, a POST sent twice decides twice.
    retries 3
    retry-on conn-failure
    option redispatch 1
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 200ms fastinter 50ms downinter 500ms fall 2 rise 1 on-marked-down shutdown-sessions{dns}
{servers}
"""


def _error_line(status: int, title: str, detail: str) -> str:
    problem = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})
    return f"    http-error status {status} content-type application/problem+json string '{problem}'"


def configuration(
    cells: Mapping[str, Sequence[str]],
    *,
    bind: str = BIND,
    local: str = LOCAL,
    socket: str = SOCKET,
    map_file: str | None = None,
) -> str:
    """Return the configuration for replicas, `host:port`, by cell; several cells need the file of their map."""
    if (len(cells) > 1) != (map_file is not None):
        raise ValueError("several cells and the file of their map belong together")
    (first, _), *_ = cells.items()
    hosts = {server.rpartition(":")[0] for servers in cells.values() for server in servers}
    named = not all(host.replace(".", "").isdecimal() or host.startswith("[") for host in hosts)
    backends = [
        _BACKEND.format(
            name=name,
            dns=" resolvers system init-addr libc,none" if named else "",
            servers="\n".join(f"    server replica-{at} {server}" for at, server in enumerate(servers, start=1)),
        )
        for name, servers in cells.items()
    ]
    return _TEMPLATE.format(
        first=f"{first}/replica-1",
        errors="\n".join(_error_line(status, *text) for status, text in _ERRORS.items()),
        bind=bind,
        local=local,
        socket=socket,
        resolvers=_RESOLVERS if named else "",
        choice=f"    default_backend {first}\n" if map_file is None else _CELLS.format(file=map_file),
        backends="\n".join(backends),
    )
