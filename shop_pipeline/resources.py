"""What the assets work with, by role: Spark, the lake, the till's files, the clock.

Run configuration changes none of it: whoever starts a run chooses days, not folders or Spark's settings.
"""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from dagster_deltalake import DeltaTableResource, LocalConfig
from dagster_pyspark import LazyPySparkResource
from dagster_pyspark.resources import spark_session_from_config
from deltalake import DeltaTable
from pydantic import PrivateAttr
from pyspark.sql import SparkSession

from shop_pipeline.core.class_data import with_archive
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.postgres import Address
from shop_pipeline.core.run_locks import RunLocks
from shop_pipeline.core.sources.shopflow_postgres import ShopflowPostgres
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.spark import check_machine, for_bytes, spark_config


class SparkResource(LazyPySparkResource):
    """Dagster's lazy Spark session, which first makes sure that Spark can start here."""

    _checked: bool = PrivateAttr(default=False)

    def check_machine(self) -> None:
        """Raises SettingError when this machine cannot run Spark: no Java, too old, or a Delta jar that does not fit."""
        if not self._checked:
            check_machine(remote=self.spark_config.get("spark.remote"))
            self._checked = True

    def session(self, source_bytes: int | None = None) -> SparkSession:
        """The session, started on first use with what suits a load of so many bytes."""
        self.check_machine()
        if self._spark_session is None:
            config = with_archive(for_bytes(self.spark_config, source_bytes))
            self._spark_session = spark_session_from_config(config)  # type: ignore[no-untyped-call]
        session: SparkSession = self._spark_session
        return session


class LakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The lake's tables, opened through dagster-deltalake."""

    uri: str

    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.uri, _open)


class TillFilesResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The till's landing folder."""

    landing: str

    def source(self, contract: Contract) -> TillFiles:
        """The files as a source under a contract."""
        return TillFiles(Path(self.landing), contract)


class ShopflowResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The web shop's database. Its address is known to this process alone: Dagster is told nothing of it."""

    _url: str | None = PrivateAttr(default=None)

    @staticmethod
    def at(url: str | None) -> "ShopflowResource":
        """The database at an address; None where there is none yet."""
        made = ShopflowResource()
        made._url = url
        return made

    def source(self, contract: Contract) -> ShopflowPostgres:
        """The orders as a source under a contract.

        Raises:
            SettingError: no address is set, or it is none.
        """
        if self._url is None:
            raise SettingError(
                "There is no database of the web shop: run `shop sample shopflow`, which makes one here, or name yours in "
                "SHOP_POSTGRES_URL."
            )
        return ShopflowPostgres(Address.of(self._url), contract)


class ClockResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The time of day, for `_loaded_at` and `run_at` alone: which day is loaded is never asked of a clock."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)


def spark_resource(master: str, remote: str | None, memory: str) -> SparkResource:
    """Spark on this machine, on a cluster, or behind a Spark Connect server."""
    return SparkResource(spark_config=spark_config(master=master, remote=remote, memory=memory))


def of_a_run(
    spark: SparkResource,
    lake: LakeResource,
    till_files: TillFilesResource,
    clock: ClockResource,
    shopflow: ShopflowResource | None = None,
) -> dict[str, dg.ResourceDefinition]:
    """The resources as a run gets them, by the names under which assets ask for them."""

    def lake_of_a_run(context: dg.InitResourceContext) -> LakeResource:
        # Every run needs the lake first of all, and is known to be alive from here on.
        if context.run is not None and context.instance is not None:
            RunLocks.of(context.instance.root_directory).hold(context.run.run_id)
        return lake

    return {
        "spark": _fixed(spark),
        "lake": dg.ResourceDefinition(lake_of_a_run, config_schema={}),
        "till_files": _fixed(till_files),
        "clock": _fixed(clock),
        "shopflow": _fixed(shopflow or ShopflowResource.at(None)),
    }


def _fixed(value: object) -> dg.ResourceDefinition:
    return dg.ResourceDefinition(lambda _: value, config_schema={})


def _open(url: str, version: int | None) -> DeltaTable:
    return DeltaTableResource(url=url, storage_options=LocalConfig(), version=version).load()
