"""Bodies of `/portfolios` and of their accounts."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from service.limits import RESOURCES_MAX
from service.schemas.admin import Check, Movement
from service.schemas.body import Body, Change, Id, PositiveAmount, Status, TimeZone
from service.schemas.campaign import Windows, WindowView
from service.schemas.space import unique
from service.schemas.view import Amounts, At, CampaignName, View, example, page, shown

CONFIG_EXAMPLE: dict[str, Any] = {
    "id": "acme",
    "resources": [{"id": "usd", "budget": 1000, "windows": [{"period": "day", "limit": 50}]}],
    "timezone": "UTC",
}
PortfolioName = Annotated[str, Field(examples=["acme"])]


class SharedResource(Body):
    """A budget that campaigns share, by the id of their resource."""

    id: Id = Field(description="id of the resource, the same as in the campaigns")
    budget: PositiveAmount = Field(description="total that all campaigns together may spend")
    windows: Windows = Field(default=[], description="limits per hour, day, week or month")

    @model_validator(mode="after")
    def _has_each_period_once(self) -> Self:
        unique("windows", (window.period for window in self.windows), "period")
        return self


class PortfolioConfig(Body):
    """A portfolio: budgets that several campaigns share."""

    model_config = example(CONFIG_EXAMPLE)

    id: Id = Field(description="id of the portfolio")
    resources: Annotated[list[SharedResource], Field(min_length=1, max_length=RESOURCES_MAX)] = Field(
        description="the shared budgets"
    )
    timezone: TimeZone = Field(default="UTC", description="IANA name of the time zone whose calendar windows follow")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        unique("resources", (resource.id for resource in self.resources))
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the configuration in JSON types, with its defaults."""
        return self.model_dump()


class SharedResourceChange(Change):
    """A new total budget, new windows, or both."""

    id: Id = Field(description="id of the resource that changes")
    budget: PositiveAmount = Field(default=1, description="at least what is spent and held")
    windows: Windows = Field(default=[], description="replaces all windows of the resource")

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if self.model_fields_set == {"id"}:
            raise ValueError("must have something to change")
        unique("windows", (window.period for window in self.windows), "period")
        return self


class PortfolioPatch(Change):
    """A change of budgets and windows."""

    model_config = example({"resources": [{"id": "usd", "budget": 1200}], "expected_version": 1})

    resources: Annotated[list[SharedResourceChange], Field(min_length=1, max_length=RESOURCES_MAX)] = Field(
        description="resources that change"
    )
    expected_version: Annotated[int, Field(ge=1)] = Field(
        default=1, description="the version that this change is for; 409 if the portfolio has another"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        unique("resources", (resource.id for resource in self.resources))
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the given fields in JSON types."""
        return self.model_dump(exclude_unset=True)


class PortfolioView(View):
    """A portfolio with its configuration and its version."""

    id: PortfolioName = Field(description="id of the portfolio")
    version: int = shown(1, "version of the configuration")
    config: dict[str, Any] = shown(CONFIG_EXAMPLE, "the configuration with its defaults")


class PortfolioDetail(PortfolioView):
    """A portfolio with the campaigns that share its budgets."""

    created_at: At = Field(description="when it was created")
    campaigns: list[str] = shown(["summer-sale"], "ids of its campaigns")


PortfolioPage = page("PortfolioPage", PortfolioDetail, "Portfolios in the order of their creation.")


class SharedAccountView(View):
    """One shared resource. granted = free + held + spent unless the budget is overrun."""

    id: str = shown("usd", "id of the resource")
    granted: float = shown(1000, "the budget")
    held: float = shown(0.7, "held by open decisions of all its campaigns")
    spent: float = shown(83.2, "costs of all its campaigns")
    overrun: float = shown(0, "amount by which held + spent exceeds the budget")
    free: float = shown(916.1, "what new decisions may hold")
    marginal_value: float = shown(
        1.2, "value of one more unit, in reward as callers report it; it is added to the prices of every campaign"
    )
    windows: list[WindowView] = Field(description="windows in their present periods")


class MemberView(View):
    """What one campaign has of the shared budgets."""

    campaign_id: CampaignName = Field(description="id of the campaign")
    status: Status = Field(description="what the campaign does now")
    held: Amounts = shown({"usd": 0.35}, "by resource, held by open decisions of the campaign")
    spent: Amounts = shown({"usd": 41.2}, "by resource, costs of the campaign")


class PortfolioBudget(View):
    """The accounts of a portfolio, and what each of its campaigns has of them."""

    portfolio_id: PortfolioName = Field(description="id of the portfolio")
    rounds: int = shown(32000, "decisions of its campaigns")
    expected_rounds: int = shown(200000, "decisions of its campaigns at their ends, by the last estimate")
    resources: list[SharedAccountView] = Field(description="one account per resource")
    campaigns: list[MemberView] = Field(description="one entry per campaign")


class SharedMovement(Movement):
    """A movement of the accounts: of the portfolio's own budgets, or of one of its campaigns."""

    campaign_id: str | None = shown("summer-sale", "whose log has it; null for the portfolio's own")


SharedLedgerPage = page("SharedLedgerPage", SharedMovement, "Movements of the accounts, newest first.")


class PortfolioVerification(View):
    """The accounts of a portfolio computed from the logs of its campaigns, its prices from the order of their calls."""

    portfolio_id: PortfolioName = Field(description="id of the portfolio")
    ok: bool = shown(True, "whether every check agrees")
    checks: list[Check] = Field(description="every value that was computed again")
