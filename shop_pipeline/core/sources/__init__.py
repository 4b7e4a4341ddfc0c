"""Where a day's rows come from. A source answers the same questions whatever lies behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import duckdb
from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Record:
    """One record of a source as it was sent: where it stands, and its text."""

    number: int
    line: int
    text: str


@dataclass(frozen=True)
class Split:
    """A part of a day's source that one Spark task read: how many records it has, and where their positions start."""

    day: date
    name: str
    first_position: int
    records: int


class OpenSource(Protocol):
    """The source of some days, found to be there and readable. Each day has at least its header or its query."""

    @property
    def refused(self) -> Mapping[date, str]:
        """Days with no readable source, each with the sentence that says why."""

    @property
    def missing(self) -> frozenset[date]:
        """Those of the refused days that have no source yet."""

    def name(self, day: date) -> str:
        """What messages call the source of a day: a path, or a query."""

    def rows_in_spark(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The records of these days: the contract's columns as text, order_date, _malformed, _split, _position."""

    def with_seq(self, rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
        """`rows` with the column `_source_seq`: unique per row and the same on every rerun."""

    def rows_in_duckdb(self, con: duckdb.DuckDBPyConnection, days: Sequence[date]) -> str:
        """The same as a query for DuckDB, with `_record` (the record's number) in place of _split and _position."""

    def records(self, day: date, numbers: Sequence[int]) -> Mapping[int, Record]:
        """Some records of a day as they were sent, by record number (counted from 1, header and blank lines apart)."""

    def size(self, days: Sequence[date]) -> int | None:
        """How many bytes these days are, as far as that is known without reading them."""

    def changed(self, days: Sequence[date]) -> Mapping[date, str]:
        """Days whose source is no longer what was opened, each with the sentence that says so."""


class Source(Protocol):
    """Opens the days of a source; holds no connection and no data."""

    def open(self, days: Sequence[date]) -> OpenSource:
        """Look at the source of these days."""
