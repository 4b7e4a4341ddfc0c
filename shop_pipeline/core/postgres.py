"""Connections to Postgres: in UTC, read-only unless told otherwise, and every failure a sentence without a password in it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

import psycopg

from shop_pipeline.core.errors import SettingError, SourceRefused, SourceUnavailable

CONNECT_SECONDS = 10
DEFAULT_PORT = 5432
# Whatever the server, the role or the database say by default.
_OPTIONS = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=postgres -c extra_float_digits=1"


@dataclass(frozen=True)
class Address:
    """Where a database is. Its text has no password, nor has its repr."""

    host: str
    port: int
    database: str
    user: str
    _password: str

    @staticmethod
    def of(url: str) -> "Address":
        """The address that a URL is, `postgresql://user:password@host:port/database`.

        Raises:
            SettingError: it is none. The URL is not repeated, for it may have a password in it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORT
        except ValueError:
            parts, port = urlsplit(""), 0
        database = parts.path.lstrip("/")
        if parts.scheme not in ("postgresql", "postgres") or not parts.hostname or not database or "/" in database or parts.query:
            raise SettingError(
                "SHOP_POSTGRES_URL is not the address of a Postgres database: write postgresql://user:password@host:port/database."
            )
        return Address(parts.hostname, port, unquote(database), unquote(parts.username or ""), unquote(parts.password or ""))

    def __str__(self) -> str:
        return f"Postgres at {self.host}:{self.port}, database {self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def for_jdbc(self) -> str:
        """The same for JDBC, without user and password."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{quote(self.database, safe='')}?ApplicationName=shop"

    @property
    def credentials(self) -> dict[str, str]:
        """User and password, as JDBC's properties."""
        return {"user": self.user, "password": self._password}

    def open(self, *, autocommit: bool = False) -> psycopg.Connection:
        """A connection.

        Raises:
            SourceUnavailable: the server cannot be reached; it may pass.
            SourceRefused: the server refused; a person must help.
        """
        with self.sentences():
            return psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.database,
                user=self.user or None,
                password=self._password or None,
                connect_timeout=CONNECT_SECONDS,
                options=_OPTIONS,
                application_name="shop",
                autocommit=autocommit,
            )

    @contextmanager
    def connect(self, *, autocommit: bool = False) -> Iterator[psycopg.Connection]:
        """A connection, closed at the end; what goes wrong in it is a sentence as well."""
        with closing(self.open(autocommit=autocommit)) as connection, self.sentences():
            yield connection

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """What psycopg raises inside, as a sentence."""
        try:
            yield
        except psycopg.Error as error:
            raise self.sentence(error) from None

    def sentence(self, error: psycopg.Error) -> SourceUnavailable | SourceRefused:
        """An error of psycopg in a sentence."""
        return self.from_state(error.sqlstate, str(error))

    def from_state(self, state: str | None, text: str) -> SourceUnavailable | SourceRefused:
        """An error in a sentence, from its SQLSTATE (None: there was no answer) and its text."""
        first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
        if self._password:
            first = first.replace(self._password, "***")
        if "authentication failed" in first or "no password supplied" in first or (state or "").startswith("28"):
            return SourceRefused(f"{self} does not let user {self.user} in: look at user and password in SHOP_POSTGRES_URL.")
        if state == "3D000" or ('database "' in first and "does not exist" in first):
            return SourceRefused(f"{self} is not there ({first}): look at SHOP_POSTGRES_URL, or run `shop sample shopflow`.")
        if state is not None and state[:2] in ("42", "22", "25"):
            return SourceRefused(f"{self} refused to answer ({first}): look at the table and at the rights of user {self.user}.")
        return SourceUnavailable(f"{self} cannot be read ({first}); nothing was written. See that it runs, and run the same again.")
