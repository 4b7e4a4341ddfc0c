"""What the assets work with, by role: Spark, the lake, the till's files, the clock.

Run configuration changes none of it: whoever starts a run chooses days, not folders or Spark's settings.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import cast

import dagster as dg
from dagster_deltalake import DeltaTableResource, LocalConfig
from dagster_pyspark import LazyPySparkResource
from dagster_pyspark.resources import spark_session_from_config
from deltalake import DeltaTable
from pydantic import PrivateAttr
from pyspark.sql import SparkSession

from shop_pipeline.core.class_data import with_archive
from shop_pipeline.core.cluster import is_cluster, joined, with_jars
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.errors import EngineLost, SettingError
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.postgres import Address
from shop_pipeline.core.run_locks import RunLocks
from shop_pipeline.core.sources.shopflow_postgres import ShopflowPostgres
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.spark import check_machine, check_server, for_bytes, jars_folder, spark_config
from shop_pipeline.core.spark_remote import ServerNote, answers, is_alive, let_go, let_go_at_exit, patient_briefly


class SparkResource(LazyPySparkResource):
    """Dagster's lazy Spark session: of the server that is named, of the one that `shop up` keeps, or of a JVM of this process's.

    `spark_config`: of a JVM of this process's. `remote`: the server that is named (SHOP_SPARK_REMOTE). `server_folder`: where
    `shop up` notes its server. `fallback`: `local` or `fail`, whether a run starts a Spark of its own where a server is expected
    and does not answer; by default it does for that of `shop up`, and not for one that is named.
    """

    remote: str | None = None
    server_folder: str | None = None
    fallback: str | None = None
    _checked: bool = PrivateAttr(default=False)
    _remote: str | None = PrivateAttr(default=None)
    _had_remote: bool = PrivateAttr(default=False)
    _beginning: Future[SparkSession] | None = PrivateAttr(default=None)

    def check_machine(self) -> None:
        """Make sure that Spark can be had.

        Raises:
            SettingError: no server answers, and this machine cannot run it either.
            EngineLost: the server that this process had a session of is gone.
        """
        if self._checked:
            return
        try:
            self._remote = self._kept() if self.remote is None else self._named(self.remote)
        except SettingError as problem:
            if self._had_remote:
                # It was there a moment ago, and may be there again at the next try.
                raise EngineLost(str(problem)) from None
            raise
        if self._remote is None:
            if self._had_remote:
                # PySpark can be a server's client or have a JVM of its own, and in one process not first this, then that.
                raise EngineLost("The Spark server went away and has not come back: run the same days again.")
            check_machine(remote=None, master=self._master)
        self._checked = True

    def prepare(self, source_bytes: int | None = None, first: Callable[[SparkSession], None] = lambda _: None) -> None:
        """Make sure that a load of so many bytes can begin, before anything of it is written.

        On a cluster the session is started: by nothing less is it known that the cluster takes it in and has workers to spare.
        On a server, where that starts no JVM, one is begun beside whatever comes next.

        Args:
            first: what a session that is begun does first, also beside that; it raises nothing.

        Raises:
            SettingError, EngineLost: as `check_machine`.
            NoExecutors: the cluster has nothing to spare.
        """
        self.check_machine()
        if self._remote is None:
            if is_cluster(self._master):
                self.session(source_bytes)
        elif self._spark_session is None and self._beginning is None:
            self._beginning = self._begin(source_bytes, first)

    def session(self, source_bytes: int | None = None) -> SparkSession:
        """The session, started on first use with what suits a load of so many bytes.

        Raises:
            SettingError: as `check_machine`.
        """
        if self._beginning is not None:
            begun, self._beginning = self._beginning, None
            self._spark_session = begun.result()
        if self._remote is not None:
            if self._spark_session is not None and not is_alive(self._spark_session):
                # The server went away since: it, or the one that was started in its place, gives another.
                let_go(self._spark_session, tell_server=False)
                self._spark_session = None
            self._checked = self._spark_session is not None
        self.check_machine()
        if self._spark_session is None:
            self._spark_session = self._new(source_bytes)
        session: SparkSession = self._spark_session
        return session

    def _begin(self, source_bytes: int | None, first: Callable[[SparkSession], None]) -> Future[SparkSession]:
        begun: Future[SparkSession] = Future()

        def begin() -> None:
            try:
                session = self._new(source_bytes)
            except BaseException as error:
                # Whoever asks for the session gets it.
                begun.set_exception(error)
            else:
                begun.set_result(session)
                first(session)

        # Not in a pool, whose threads the end of the process would wait for.
        Thread(target=begin, daemon=True).start()
        return begun

    def _new(self, source_bytes: int | None) -> SparkSession:
        if self._remote is None:
            config = with_jars(with_archive(for_bytes(self.spark_config, source_bytes)), jars_folder())

            def start() -> SparkSession:
                with _interrupts_as_they_were():
                    return cast("SparkSession", spark_session_from_config(config))  # type: ignore[no-untyped-call]

            return joined(self._master, start) if is_cluster(self._master) else start()
        self._had_remote = True
        config = for_bytes(spark_config(master="", remote=self._remote, memory=""), source_bytes)
        with patient_briefly():
            session = cast("SparkSession", spark_session_from_config(config))  # type: ignore[no-untyped-call]
        let_go_at_exit(session)
        return session

    @property
    def _master(self) -> str:
        return str(self.spark_config.get("spark.master", "local[*]"))

    def _named(self, url: str) -> str | None:
        """The server that is named, if it answers."""
        try:
            check_server(url)
        except SettingError as problem:
            if self.fallback != "local":
                raise
            print(f"shop: {problem} SHOP_SPARK_FALLBACK is local: this run starts Spark itself.", file=sys.stderr)
            return None
        return url

    def _kept(self) -> str | None:
        """The server of `shop up`, if there is one and it answers."""
        if self.server_folder is None:
            return None
        note = ServerNote(Path(self.server_folder))
        if not note.is_kept():
            return None
        url = note.wait_for_url()
        if url is not None and answers(url):
            return url
        if not note.is_kept():
            return None
        problem = f"The Spark server of `shop up` does not answer (its log: {note.log})"
        if self.fallback == "fail":
            raise SettingError(
                f"{problem}: look there, start `shop up` again, or unset SHOP_SPARK_FALLBACK, and runs start Spark themselves."
            )
        print(f"shop: {problem}: this run starts Spark itself.", file=sys.stderr)
        return None


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


def spark_resource(
    master: str, remote: str | None, memory: str, *, server_folder: Path | None = None, fallback: str | None = None
) -> SparkResource:
    """Spark on this machine, on a cluster, or behind a Spark Connect server; see SparkResource."""
    return SparkResource(
        spark_config=spark_config(master=master, remote=None, memory=memory),
        remote=remote,
        server_folder=None if server_folder is None else str(server_folder),
        fallback=fallback,
    )


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


@contextmanager
def _interrupts_as_they_were() -> Iterator[None]:
    """Undo what starting Spark does to Ctrl-C: its handler asks the JVM in the middle of another question to it, and reports so
    in two tracebacks. Whoever waits for the JVM has it stop (`delta_writes`), and it ends with this process.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, before)


def _fixed(value: object) -> dg.ResourceDefinition:
    return dg.ResourceDefinition(lambda _: value, config_schema={})


def _open(url: str, version: int | None) -> DeltaTable:
    return _table(url, version).load()


@lru_cache(maxsize=64)
def _table(url: str, version: int | None) -> DeltaTableResource:
    # To make one, Dagster looks over the configuration of its class: longer than to open the table.
    return DeltaTableResource(url=url, storage_options=LocalConfig(), version=version)
