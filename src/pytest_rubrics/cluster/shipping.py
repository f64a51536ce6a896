"""What a plan takes from the controller's files and environment, put into the plan itself before it travels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pytest_rubrics.calls.providers import effective_api_base
from pytest_rubrics.cluster.worker import Shipment
from pytest_rubrics.config import EndpointConfig, PriceTable, load_prices
from pytest_rubrics.plan import BenchmarkPlan, Case, Plan

if TYPE_CHECKING:
    from pytest_rubrics.wiring import Wiring

Config = TypeVar("Config")


def shipment(wiring: Wiring, cases: Sequence[tuple[BenchmarkPlan, Case]]) -> Shipment:
    """What workers need of a run.

    Args:
        wiring: The controller's own parts, with jobs and therefore endpoints and limits.
        cases: The cases of the jobs.
    """
    return Shipment(
        _settled(wiring.plan),
        [(plan.benchmark.name, case.id) for plan, case in cases],
        {id_: endpoint.address for id_, endpoint in wiring.endpoints.items()},
        {name: slots.count for name, slots in wiring.pools.items()},
    )


def _settled(plan: Plan) -> Plan:
    """The plan with addresses and prices written out; keys stay names of variables, each host has its own values."""
    prices = load_prices(plan.workspace)
    members = tuple(replace(member, config=_endpoint(member.config, prices)) for member in plan.judge.members)
    judge = replace(plan.judge, config=_endpoint(plan.judge.config, prices), members=members)
    models = [replace(model, config=_endpoint(model.config, prices)) for model in plan.models]
    return replace(plan, models=models, judge=judge)


def _endpoint(config: Config, prices: PriceTable) -> Config:
    if not isinstance(config, EndpointConfig):
        return config
    address = effective_api_base(config.model, config.api_base)
    return config.model_copy(update={"api_base": address, "price": config.price or prices.get(config.model)})
