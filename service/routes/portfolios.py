"""`/portfolios` and their accounts: for keys that are not limited to campaigns, because a portfolio shows them all."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from service import reads
from service.access import UnlimitedAdmin, UnlimitedReader
from service.dependencies import IdempotencyKey, PageQuery, show, submitted, submitted_once
from service.engine.commands import CreatePortfolio, PatchPortfolio
from service.openapi import documented, replayable
from service.responses import parsed
from service.schemas import portfolio as bodies

router = APIRouter(tags=["portfolios"])

PortfolioId = Annotated[str, Path(description="id of the portfolio", examples=["acme"])]


@router.post(
    "/portfolios", **replayable(documented(bodies.PortfolioView, 409, body=bodies.PortfolioConfig, status=201))
)
async def create_portfolio(request: Request, principal: UnlimitedAdmin, key: IdempotencyKey) -> Response:
    """Create a portfolio and grant its budgets; campaigns name it when they are created."""
    config = parsed(await request.body(), bodies.PortfolioConfig).as_json()
    return await submitted_once(request, CreatePortfolio(config, principal.key_id), key)


@router.get("/portfolios", **documented(bodies.PortfolioPage, 422))
async def list_portfolios(request: Request, principal: UnlimitedReader, page: PageQuery) -> Response:
    """List portfolios with their campaigns, in the order of their creation."""
    return await show(request, reads.portfolios, **page)


@router.get("/portfolios/{portfolio_id}", **documented(bodies.PortfolioDetail, 404))
async def show_portfolio(request: Request, portfolio_id: PortfolioId, principal: UnlimitedReader) -> Response:
    """Show a portfolio: its configuration, its version and its campaigns."""
    return await show(request, reads.portfolio, portfolio_id)


@router.patch("/portfolios/{portfolio_id}", **documented(bodies.PortfolioView, 404, 409, body=bodies.PortfolioPatch))
async def change_portfolio(request: Request, portfolio_id: PortfolioId, principal: UnlimitedAdmin) -> Response:
    """Change budgets and windows, not below what is spent and held."""
    body = parsed(await request.body(), bodies.PortfolioPatch)
    return await submitted(request, PatchPortfolio(portfolio_id, body.as_json(), principal.key_id))


_BEHIND = "/admin/portfolios/{portfolio_id}"


@router.get(f"{_BEHIND}/budget", **documented(bodies.PortfolioBudget, 404))
async def show_portfolio_budget(request: Request, portfolio_id: PortfolioId, principal: UnlimitedReader) -> Response:
    """Show the accounts of a portfolio, and what each of its campaigns has of them."""
    return await show(request, reads.portfolio_budget, portfolio_id)


@router.get(f"{_BEHIND}/ledger", **documented(bodies.SharedLedgerPage, 404, 422))
async def list_portfolio_movements(
    request: Request, portfolio_id: PortfolioId, principal: UnlimitedReader, page: PageQuery
) -> Response:
    """List every movement of the accounts, of all campaigns, newest first."""
    return await show(request, reads.portfolio_ledger, portfolio_id, **page)


@router.get(f"{_BEHIND}/verify", **documented(bodies.PortfolioVerification, 404))
async def verify_portfolio(request: Request, portfolio_id: PortfolioId, principal: UnlimitedReader) -> Response:
    """Compute the accounts again from the logs of the campaigns, and the prices from the order of their calls."""
    return await show(request, reads.verify_portfolio, portfolio_id)
