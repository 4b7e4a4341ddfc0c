"""A source's whole pipeline, as `shop --source` names it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import dagster as dg

from shop_pipeline.assets.daily_load import Feed
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.plan import Figures
from shop_pipeline.core.sources import Source


class GivesSource(Protocol):
    """A resource that has a source."""

    def source(self, contract: Contract) -> Source:
        """The source under a contract."""


@dataclass(frozen=True)
class Pipeline:
    """What loads a feed's days, what is made of them (in this order), and what compares a day again."""

    feed: Feed
    load: dg.AssetsDefinition
    made: Sequence[dg.AssetsDefinition]
    recheck: dg.JobDefinition
    resource: GivesSource
    first_setting: str
    job: str
    figures: Figures

    @property
    def source(self) -> Source:
        """The source under the feed's contract."""
        return self.resource.source(self.feed.contract)
