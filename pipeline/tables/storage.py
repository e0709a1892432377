"""Files and folders that Spark, delta-rs and Python reach by one path.

Owns where a path is, and what a job does there besides Spark: look, remove, rename. Spark alone
reads and writes rows. Nothing here needs Spark's Java machine, so jobs on Spark Connect use it,
too; but this process must reach the storage itself.

Keys of ``s3://`` and ``s3a://`` come from Spark's settings ``spark.hadoop.fs.s3a.*``, of which
:data:`S3` has those that count, and else from the environment, as those of all others do. So does
the endpoint, by ``AWS_ENDPOINT_URL``.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError

#: Settings of Spark, without ``spark.hadoop.``, and what delta-rs and pyarrow call them.
S3: Final = {
    "fs.s3a.access.key": ("aws_access_key_id", "access_key"),
    "fs.s3a.secret.key": ("aws_secret_access_key", "secret_key"),
    "fs.s3a.session.token": ("aws_session_token", "session_token"),
    "fs.s3a.endpoint": ("aws_endpoint_url", "endpoint_override"),
    "fs.s3a.endpoint.region": ("aws_region", "region"),
}
_OF_S3: Final = ("s3", "s3a")
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")
_SLASHES: Final = re.compile("/{2,}")
_PATTERN: Final = re.compile(r"([\\{}\[\]*?,])")
#: Footers of Parquet files that are read at the same time.
_AT_ONCE: Final = 16


def literally(path: str) -> str:
    """A path as a pattern of Spark's that means nothing else."""
    return _PATTERN.sub(r"\\\1", path)


@dataclass(frozen=True)
class File:
    """A file or a folder that was found.

    :param name: below the folder that was looked into.
    :param octets: its size; of a folder 0.
    :param changed: when, in nanoseconds since 1970; 0 of a folder of an object store.
    """

    name: str
    octets: int
    changed: int


class Location:
    """A file or a folder, which may be there or not.

    Each method raises a :class:`PipelineError` where this process does not reach it.

    :param path: an address, or a path where Spark's default file system has it; there a relative
        one is below this process's working folder, or below the user's.
    :raises PipelineError: it is no storage that is known.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not path.strip():
            raise PipelineError("an empty text is no path: expected a file or a folder")
        self._spark: Final = spark
        #: As it was given.
        self.path: Final = path.rstrip("/") or "/"
        #: With scheme, as Spark reads and writes it.
        self.uri: Final = _qualified(spark, self.path)
        self._scheme, _, rest = self.uri.partition(":")
        #: On a file system of this machine: where.
        self.local: Final = Path(rest) if self._scheme == "file" else None
        self._within: Final = rest if self.local else rest.removeprefix("//")

    def __truediv__(self, name: str) -> Location:
        return Location(self._spark, f"{self.path}/{name}")

    @property
    def address(self) -> str:
        """As delta-rs has it."""
        return str(self.local or self.uri)

    @property
    def options(self) -> dict[str, str]:
        """What delta-rs is told to reach it."""
        if self._scheme not in _OF_S3:
            return {}
        found = _given(self._spark, 0)
        if found.get("aws_endpoint_url", "").startswith("http://"):
            found["aws_allow_http"] = "true"
        return found

    @property
    def renames(self) -> bool:
        """Whether a folder can be renamed, as one step."""
        return self._scheme in ("file", "hdfs", "viewfs")

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        return self._kind() is not fs.FileType.NotFound

    def is_folder(self) -> bool:
        """Whether there is a folder.

        Object stores have one where there is something in it.
        """
        return self._kind() is fs.FileType.Directory

    def files(self, pattern: str = "*", below: bool = False) -> list[File]:
        """Return the files of the folder by name; none where there is no folder.

        :param pattern: of their names, as a shell has it.
        :param below: those of its folders, too.
        """
        found = self._found(below)
        return [one for one, folder in found if not folder and _named(one.name, pattern)]

    def folders(self) -> list[File]:
        """Return the folders in the folder by name."""
        return [one for one, folder in self._found(False) if folder]

    def read(self) -> bytes:
        """Return what a file has, which is small."""
        with self._reached():
            system, path = self._system
            with system.open_input_file(path) as file:
                return bytes(file.read())

    @contextmanager
    def input(self, name: str) -> Iterator[pa.NativeFile]:
        """Open a file in the folder to read it."""
        with self._reached():
            system, root = self._system
            with system.open_input_file(f"{root}/{name}") as file:
                yield file

    @contextmanager
    def output(self, name: str) -> Iterator[pa.NativeFile]:
        """Create a file in the folder, and the folders above it; open it to write."""
        with self._reached():
            system, root = self._system
            path = f"{root}/{name}"
            if self.renames:
                # An object store has no folders, and would get an object for each.
                system.create_dir(path.rpartition("/")[0], recursive=True)
            with system.open_output_stream(path) as file:
                yield file

    def footers(self, names: Sequence[str]) -> list[parquet.FileMetaData]:
        """Return what Parquet files say of themselves, one for each name."""
        system, root = self._system

        def footer(name: str) -> parquet.FileMetaData:
            with system.open_input_file(f"{root}/{name}") as file:
                return parquet.read_metadata(file)

        with self._reached(), ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(footer, names))

    def remove(self) -> bool:
        """Remove a file, or a folder with all that it has.

        :returns: whether it was there.
        """
        with self._reached():
            system, path = self._system
            kind = self._kind()
            try:
                if self.local is not None and self.local.is_symlink():
                    self.local.unlink()
                    return True
                if kind is fs.FileType.Directory:
                    system.delete_dir(path)
                elif kind is not fs.FileType.NotFound:
                    system.delete_file(path)
            except FileNotFoundError:
                # Somebody else was first.
                return False
            return kind is not fs.FileType.NotFound

    def rename(self, new: Location) -> None:
        """Give a folder another name, and make the folders above that.

        :raises OSError: it cannot; nothing has changed.
        """
        system, path = self._system
        _, target = new._system
        system.create_dir(str(Path(target).parent), recursive=True)
        if self.local is not None:
            # Where it cannot be renamed others would copy.
            os.rename(path, target)
        else:
            system.move(path, target)

    def resolved(self) -> Location:
        """The folder itself, where this is a link to it."""
        if self.local is None:
            return self
        return Location(self._spark, f"file:{self.local.resolve()}")

    def _kind(self) -> fs.FileType:
        with self._reached():
            system, path = self._system
            return system.get_file_info(path).type

    def _found(self, below: bool) -> list[tuple[File, bool]]:
        """What is in the folder, and whether it is a folder."""
        with self._reached():
            system, root = self._system
            chosen = fs.FileSelector(root, allow_not_found=True, recursive=below)
            found = system.get_file_info(chosen)
        above = f"{root.rstrip('/')}/"
        return sorted(
            (
                (
                    File(one.path.removeprefix(above), one.size or 0, one.mtime_ns or 0),
                    one.type is fs.FileType.Directory,
                )
                for one in found
            ),
            key=lambda pair: pair[0].name,
        )

    @functools.cached_property
    def _system(self) -> tuple[Any, str]:
        """The file system as pyarrow has it, and the path there."""
        with self._reached():
            if self.local is not None:
                return fs.LocalFileSystem(), self._within
            if self._scheme in _OF_S3:
                return fs.S3FileSystem(**_given(self._spark, 1)), self._within
            return fs.FileSystem.from_uri(self.uri)  # type: ignore[no-any-return]

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, ImportError) as error:
            text = " ".join(str(error).split())
            raise PipelineError(
                f"{self.path} cannot be reached from where this job's Python runs ({text}): expected storage that it reaches as Spark does"
            ) from error


def _named(name: str, pattern: str) -> bool:
    return fnmatchcase(name.rpartition("/")[2], pattern)


def _qualified(spark: SparkSession, path: str) -> str:
    """A path with its scheme."""
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1] == "file":
        place = path.removeprefix("file:")
        if not place.startswith("/") or (place.startswith("//") and place[2:3] != "/"):
            raise PipelineError(f"{path}: expected file:/PATH, of this machine")
        return f"file:{os.path.abspath('/' + place.lstrip('/'))}"
    if scheme is not None:
        # As Hadoop has it.
        start, _, rest = path.partition("://")
        return f"{start}://{_SLASHES.sub('/', rest)}"
    home = _home(spark)
    if home.startswith("file:"):
        # Where Spark's server has another working folder than this process.
        return f"file:{os.path.abspath(path)}"
    if path.startswith("/"):
        return "/".join(home.split("/")[:3]) + path
    return f"{home}/{path}"


@functools.lru_cache(maxsize=1)
def _home(spark: SparkSession) -> str:
    """Where Spark has what is given by a relative path: with scheme."""
    name = uuid.uuid4().hex
    try:
        # Asked in this way it says so on Spark Connect, too.
        _ = spark.read.text(name).schema
    except AnalysisException as error:
        said = (error.getMessageParameters() or {}).get("path", "")
        if not said.endswith(f"/{name}"):
            raise
        return said.removesuffix(f"/{name}")
    raise AssertionError(f"there is a file {name}")


def _given(spark: SparkSession, whose: int) -> dict[str, str]:
    """Those of :data:`S3` that are among Spark's settings.

    The endpoint may be in the environment, too. Spark and delta-rs look for it there, and pyarrow
    does not.

    :param whose: names they have here: 0 of delta-rs, 1 of pyarrow.
    """
    found = {}
    for key, names in S3.items():
        value = spark.conf.get(f"spark.hadoop.{key}", None)
        if not value and key == "fs.s3a.endpoint":
            value = os.environ.get("AWS_ENDPOINT_URL")
        if value and key == "fs.s3a.endpoint" and "://" not in value:
            # Hadoop needs none.
            plain = spark.conf.get("spark.hadoop.fs.s3a.connection.ssl.enabled", "true") == "false"
            value = f"{'http' if plain else 'https'}://{value}"
        if value:
            found[names[whose]] = value
    return found
