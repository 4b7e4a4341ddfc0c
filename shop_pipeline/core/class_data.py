"""A quicker start of Spark's JVM: an archive of its loaded classes (class-data sharing), one per Java and set of jars.

The JVM maps the archive instead of reading, checking and laying out some twenty thousand classes. `make setup` makes it
(`cold_start`); where there is none that fits (another Java, other jars), the first process that starts Spark has it made when
that process ends, in the background. Without one everything works as well, only slower.
"""

import atexit
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.spark import class_path_settings, jars_folder, java_command

_planned: list[str] = []


def archive_folder() -> Path:
    """Where the archives lie: beside the jars, so that a new environment brings its own."""
    return jars_folder().parent / "class-data"


def identity(java: Path) -> str:
    """What an archive must have been made for to fit: this Java, Spark's jars and ours."""
    said = [f"{java.resolve()}"]
    # Beside a JDK's bin folder; a Java that is replaced in place has another.
    release = java.resolve().parent.parent / "release"
    said.append(release.read_text(errors="replace") if release.is_file() else str(java.stat()))
    for folder in (Path(pyspark.__file__).parent / "jars", jars_folder()):
        said += sorted(f"{jar} {seen.st_size} {seen.st_mtime_ns}" for jar in folder.glob("*.jar") for seen in [jar.stat()])
    said += class_path_settings()
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def archive_of(which: str) -> Path | None:
    """The archive of an identity; None where there is none. Its size is in its name: a JVM dies of one that was cut short."""
    for archive in archive_folder().glob(f"{which}-*.jsa"):
        if archive.name == name_of(which, archive.stat().st_size):
            return archive
    return None


def name_of(which: str, size: int) -> str:
    """The file name of an archive of so many bytes."""
    return f"{which}-{size}.jsa"


def with_archive(config: dict[str, str]) -> dict[str, str]:
    """The settings for a session, with the archive where there is one that fits; where there is none it is made later on.

    Nothing here is a reason not to start: what goes wrong leaves Spark's start as slow as it was.
    """
    if "spark.driver.extraJavaOptions" not in config:
        return config
    try:
        which = identity(Path(java_command()))
        archive = archive_of(which)
    except (OSError, SettingError):
        return config
    if archive is None:
        _plan(which)
        return config
    # An archive that does not fit after all is passed over; the JVM would say so on standard output, among the results.
    options = f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
    return {**config, "spark.driver.extraJavaOptions": f"{config['spark.driver.extraJavaOptions']} {options}"}


def _plan(which: str) -> None:
    """Have the archive made when this process has ended, so that it takes nothing from the load."""
    if not _planned and not note_of_failure(which).exists() and os.access(_nearest(archive_folder()), os.W_OK):
        atexit.register(_make_in_background)
        _planned.append(which)


def _make_in_background() -> None:
    command = [sys.executable, "-m", "shop_pipeline.core.cold_start"]
    if nice := shutil.which("nice"):
        command = [nice, "-n", "19", *command]
    with contextlib.suppress(OSError):
        subprocess.Popen(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def note_of_failure(which: str) -> Path:
    """Where it is noted that this archive cannot be made, so that not every run tries."""
    return archive_folder() / f"{which}.failed"
