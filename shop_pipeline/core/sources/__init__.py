"""Where a day's rows come from. A source answers the same questions whatever lies behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import duckdb
from pyspark.sql import DataFrame, SparkSession

from shop_pipeline.core.errors import ShopError

# The kind of hash of a content that could not be read as rows.
BYTES = "bytes"


@dataclass(frozen=True)
class Record:
    """One record of a source as it was sent: its place in words (`line 5`), its text, and how many fields it has."""

    number: int
    place: str
    text: str
    fields: int


@dataclass(frozen=True)
class Drift:
    """How the columns of a day's source differ from the contract's: those the table takes on, those left out, another order."""

    added: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    reordered: bool = False

    def __bool__(self) -> bool:
        """Whether they differ at all."""
        return bool(self.added or self.ignored or self.reordered)


@dataclass(frozen=True)
class Split:
    """A part of a day's source that one Spark task read: where it starts, where its positions start, how many records it has."""

    day: date
    start: int
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

    @property
    def noun(self) -> str:
        """What a day's source is: a file, or a source."""

    def close(self) -> None:
        """Let go of what is held; nothing is read after it."""

    def size(self, days: Sequence[date]) -> int | None:
        """How many bytes these days are, as far as that is known."""

    def explain(self, error: Exception) -> ShopError | None:
        """What an engine said of the source, in a sentence; None when the error is about something else."""

    def name(self, day: date) -> str:
        """What messages call the source of a day: a path, or a query."""

    def drift(self, day: date) -> Drift:
        """How the columns of a day differ from the contract's."""

    def fields(self, day: date) -> int:
        """How many fields a record of the day has when it is whole."""

    def new_columns(self, days: Sequence[date]) -> tuple[str, ...]:
        """The columns that these days bring beyond the contract's, in order."""

    def rows_in_spark(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The records of these days: the contract's and the new columns as text, order_date, _malformed, _split, _position."""

    def known_splits(self, records: Mapping[date, int]) -> list[Split] | None:
        """Where Spark will cut the source of these days (with so many records), where that is known without asking it.

        Positions are then counted from each split's own start, `first_position` 0.
        """

    def rows_of_known_splits(self, spark: SparkSession, day: date) -> DataFrame:
        """What `rows_in_spark` gives of a day whose splits are known; it may rely on them, where that is faster."""

    def with_seq(self, rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
        """`rows` with the column `_source_seq`: unique per row and the same on every rerun."""

    def rows_in_duckdb(self, con: duckdb.DuckDBPyConnection, days: Sequence[date]) -> str:
        """The same as a query for DuckDB, with `_record` (the record's number) in place of _split and _position."""

    def records(self, day: date, numbers: Sequence[int]) -> Mapping[int, Record]:
        """Some records of a day as they were sent, by record number (counted from 1, header and blank lines apart)."""

    def remarks(self) -> list[str]:
        """What is odd about the source as a whole, a sentence each."""

    def changed(self, days: Sequence[date]) -> Mapping[date, str]:
        """Days whose source is no longer what was opened, each with the sentence that says so."""

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """What stands for the content of these days, where the source can say so itself; see Source.fingerprints."""


class Source(Protocol):
    """Opens the days of a source; holds no connection and no data."""

    def size(self, days: Sequence[date]) -> int | None:
        """About how many bytes these days are, as far as that is known without reading them."""

    def open(self, days: Sequence[date]) -> OpenSource:
        """Look at the source of these days."""

    def missing(self, days: Sequence[date]) -> frozenset[date]:
        """Those of these days that have no source yet."""

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """What stands for the content of these days, as a load notes it (`<rows>:<hash>:<kind of hash>`).

        Days whose source cannot be read at all have none. Loads nothing, and takes no more of the source into memory than it must.
        """
