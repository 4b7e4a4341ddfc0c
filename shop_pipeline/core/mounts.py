"""What kind of file system the lake lies on, and why some are refused.

A commit is safe where a file can be made under a name only if nobody has that name yet, at once and for all who look. Delta's
Rust library does it by a hard link; Spark's Delta looks and renames, under our lock, which is the kernel's (flock).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# Object stores that are shown as a folder: a rename there is a copy that can be seen half done and overwrites what is there;
# no hard links; a lock holds on one machine, or not at all.
_OBJECT_STORES = (
    "s3fs",
    "goofys",
    "mountpoint-s3",
    "mount-s3",
    "gcsfuse",
    "blobfuse",
    "blobfuse2",
    "rclone",
    "ossfs",
    "cosfs",
    "obsfs",
    "davfs",
    "catfs",
    "geesefs",
    "yas3fs",
    "riofs",
)
# The server, or its protocol, has no hard links or no rename that is one step.
_NOT_AT_ONCE = ("cifs", "smb3", "smb2", "smbfs", "sshfs", "afpfs", "webdav")
# At once on the server; but other machines may not see it for a minute, for they remember what a folder has.
_SHARED = ("nfs", "nfs4")


@dataclass(frozen=True)
class Mount:
    """A line of the mount table: what is mounted, where, and of which kind (`fuse.s3fs`)."""

    device: str
    folder: str
    kind: str

    @property
    def name(self) -> str:
        """The kind as people know it: of a FUSE file system its own, which some give as kind and some as device."""
        kind = self.kind.lower().removeprefix("fuse.")
        return self.device.lower() if kind == "fuse" else kind


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that a path lies on: the deepest one, and of two in one place the later, which covers the other."""
    found = None
    for mount in mounts:
        folder = mount.folder.rstrip("/")
        lies_on = path == mount.folder or path.startswith(f"{folder}/")
        if lies_on and (found is None or len(folder) >= len(found.folder.rstrip("/"))):
            found = mount
    return found


def refusal(mount: Mount, *, spread: bool) -> str | None:
    """Why no commit on this mount is safe; None where it is.

    Args:
        spread: Spark's executors, or its server, are on other machines, so that they and this one need a shared folder.
    """
    name = mount.name.partition("#")[0].partition(":")[0].rpartition("/")[2]
    where = f"{mount.folder} is a mount of {mount.name}"
    if name in _OBJECT_STORES:
        return f"{where}, an object store, to which this version cannot commit safely; name a folder on a disk"
    if mount.kind.lower() == "fuse":
        return f"{where} by FUSE, which does not say what it is, so that commits to it may not be safe; name a folder on a disk"
    if name in _NOT_AT_ONCE:
        return f"{where}, which has no commit in one step; name a folder on a disk, or one on NFS for a cluster"
    if name in _SHARED and not spread:
        return (
            f"{where}, where two machines do not see each other's commits in time; with Spark on this machine name a folder on "
            "its disk (docs/clusters.md)"
        )
    return None


def refusal_of(lake: str, *, spread: bool) -> str | None:
    """The same for the folder of a lake, which need not be there yet, by this machine's mount table."""
    mounts = [Mount(each.device, each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    mount = mount_of(os.path.realpath(Path(lake)), mounts)
    return None if mount is None else refusal(mount, spread=spread)
