"""The settings, and the only code that reads the environment."""

import difflib
import os
import re
import sys
from datetime import date, tzinfo
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shop_pipeline.core import cluster, mounts
from shop_pipeline.core.errors import SettingError


class Settings(BaseSettings):
    """What `SHOP_…` variables (or a `.env` file in the working directory) say; the defaults make a fresh folder a fresh world.

    Relative paths belong to the working directory.
    """

    model_config = SettingsConfigDict(env_prefix="SHOP_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True)

    landing: Path = Path("landing")
    lake: str = "lake"
    contracts: Path | None = None
    spark_remote: str | None = None
    spark_master: str = "local[*]"
    spark_memory: str = "2g"
    spark_fallback: Literal["local", "fail"] | None = None
    timezone: str = "UTC"
    first_run_date: date = date(2026, 9, 2)
    shopflow_first_day: date = Field(date(2024, 1, 1), validation_alias="SHOPFLOW_FIRST_DAY")
    shopflow_retry_seconds: float = Field(120, ge=0, le=3600, validation_alias="SHOPFLOW_RETRY_SECONDS")
    # With passwords in them: shown nowhere.
    postgres_url: SecretStr | None = None
    postgres: Path = Path("postgres")
    alert_urls: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    dagster_home: Path = Field(Path("dagster_home"), validation_alias="DAGSTER_HOME")

    @field_validator("landing", "dagster_home", "postgres")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        absolute = Path(os.path.abspath(path.expanduser()))
        _check_folder(absolute)
        return absolute

    @field_validator("contracts")
    @classmethod
    def _there(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        absolute = Path(os.path.abspath(path.expanduser()))
        if not absolute.is_dir():
            raise ValueError(f"{absolute} is no folder; name the folder with your contract files")
        return absolute

    @field_validator("lake")
    @classmethod
    def _path_or_url(cls, lake: str) -> str:
        if "://" in lake:
            raise ValueError(f"{lake!r} is an object store, to which this version cannot commit safely; name a folder")
        path = os.path.abspath(os.path.expanduser(lake))
        odd = sorted(set(path) & set("[]{}^|%#?*<>\\"))
        if odd:
            raise ValueError(f"{path!r} has {' '.join(odd)} in it, which not every engine takes literally; name another folder")
        _check_folder(Path(path))
        return path

    @field_validator("spark_master")
    @classmethod
    def _a_master(cls, master: str) -> str:
        if fault := cluster.fault_of(master):
            raise ValueError(fault)
        return master

    @field_validator("spark_memory")
    @classmethod
    def _amount(cls, memory: str) -> str:
        if not re.fullmatch(r"[1-9][0-9]*[kmgt]", memory, re.IGNORECASE):
            raise ValueError(f"{memory!r} is not an amount of memory; write it like 2g or 800m")
        return memory

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{name!r} is not a time zone; write a name such as Europe/Berlin") from None
        return name

    @field_validator("spark_remote")
    @classmethod
    def _connect_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith("sc://"):
            # Not repeated here: an address may have a password or a token in it.
            raise ValueError("it is not the address of a Spark Connect server; write sc://host:port")
        return url

    @field_validator("alert_urls", mode="before")
    @classmethod
    def _urls(cls, text: object) -> object:
        urls = tuple(text.split()) if isinstance(text, str) else ()
        if urls:
            import apprise

            known = [apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None for url in urls]
            if not all(known):
                # Not repeated here: an address may have a password in it.
                raise ValueError(
                    f"entry {known.index(False) + 1} is no address that apprise knows; write such as mailto://… or json://…, with "
                    "blanks between them and none within (a blank in a password is %20)"
                )
        return urls

    @field_validator("first_run_date", "shopflow_first_day", mode="before")
    @classmethod
    def _plain_date(cls, value: object) -> object:
        # pydantic would also take a number of seconds, or a time at midnight, for a date
        if isinstance(value, str):
            try:
                return date.fromisoformat(value)
            except ValueError:
                raise ValueError(f"{value!r} is not a date; write it as YYYY-MM-DD") from None
        return value

    @property
    def database(self) -> str | None:
        """The address of the web shop's database: the one that is set, else that of the local server, where there is one."""
        if self.postgres_url is not None:
            return self.postgres_url.get_secret_value()
        file = self.postgres / "url"
        return (file.read_text().strip() or None) if file.is_file() else None

    @property
    def spark_server(self) -> Path:
        """Where `shop up` notes its Spark server."""
        return self.dagster_home / "spark_server"

    @property
    def spread(self) -> bool:
        """Whether Spark's work may be done on other machines, which need the same folders as this one."""
        return self.spark_remote is not None or cluster.is_cluster(self.spark_master)

    @property
    def zone(self) -> tzinfo:
        """The time zone that decides when the till's schedule fires and what "today" is, and nothing else."""
        return ZoneInfo(self.timezone)


def _check_folder(path: Path) -> None:
    """Raises ValueError when a file stands where a folder is, or is to be made."""
    for each in (path, *path.parents):
        if each.exists():
            if not each.is_dir():
                raise ValueError(f"{each} is a file, not a folder; name a folder")
            return


_MEND = "Mend it in the environment or in .env."


def load_settings() -> Settings:
    """The settings in force.

    Raises:
        SettingError: one of them is wrong; the text names the variable and the reason.
    """
    try:
        settings = Settings()  # type: ignore[call-arg]  # the values come from the environment
    except ValidationError as error:
        problems = "; ".join(f"{_variable(problem['loc'])}: {_reason(problem)}" for problem in error.errors())
        raise SettingError(f"A setting is wrong: {problems}. {_MEND}") from None
    if refusal := mounts.refusal_of(settings.lake, spread=settings.spread):
        raise SettingError(f"A setting is wrong: SHOP_LAKE: {settings.lake!r}: {refusal}. {_MEND}")
    _warn_of_unknown_names()
    return settings


def _variable(location: tuple[int | str, ...]) -> str:
    name = str(location[0])
    return name if name.isupper() else f"SHOP_{name.upper()}"


def _reason(problem: object) -> str:
    return str(problem["msg"]).removeprefix("Value error, ")  # type: ignore[index]


def _warn_of_unknown_names() -> None:
    """Say which `SHOP_…` variables mean nothing here: a mistyped one would otherwise be passed over in silence."""
    known = {f"SHOP_{name.upper()}" for name, field in Settings.model_fields.items() if field.validation_alias is None}
    for name in sorted(os.environ):
        if name.startswith("SHOP_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            print(f"shop: {name} is not a setting and is ignored{hint}", file=sys.stderr)


def prepare_dagster_home(settings: Settings) -> Path:
    """Make DAGSTER_HOME ready (folder and shipped dagster.yaml; one that is there stays) and set the variable for Dagster."""
    home = settings.dagster_home
    config = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            config.write_text(files("shop_pipeline").joinpath("dagster.yaml").read_text())
    except OSError as error:
        raise SettingError(f"DAGSTER_HOME: {home} cannot be written to ({error.strerror}); name another folder.") from None
    os.environ["DAGSTER_HOME"] = str(home)
    return home
