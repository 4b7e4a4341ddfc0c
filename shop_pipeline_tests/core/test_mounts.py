"""Which file systems a lake may lie on (C54)."""

from pathlib import Path

import psutil
import pytest

from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.mounts import Mount, mount_of, refusal, refusal_of
from shop_pipeline.settings import load_settings
from shop_pipeline_tests.conftest import Shop


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("s3fs", "fuse.s3fs"),
        ("bucket:/", "fuse.gcsfuse"),
        ("remote:bucket/path", "fuse.rclone"),
        ("mountpoint-s3", "fuse"),
        ("blobfuse2", "fuse"),
        ("bucket", "fuse.goofys"),
        ("https://example.org/dav", "fuse.davfs"),
    ],
)
@pytest.mark.parametrize("spread", [False, True])
def test_an_object_store_behind_a_folder_is_refused(device: str, kind: str, spread: bool) -> None:
    why = refusal(Mount(device, "/mnt/lake", kind), spread=spread)
    assert why is not None
    assert why.startswith("/mnt/lake is a mount of ")
    assert "an object store, to which this version cannot commit safely" in why


def test_a_fuse_file_system_that_does_not_say_what_it_is_is_refused() -> None:
    """goofys shows its bucket's name, and no name of its own."""
    why = refusal(Mount("my-bucket", "/mnt/lake", "fuse"), spread=True)
    assert why is not None
    assert "by FUSE, which does not say what it is" in why


@pytest.mark.parametrize("kind", ["cifs", "smb3", "fuse.sshfs"])
def test_a_share_without_a_commit_in_one_step_is_refused(kind: str) -> None:
    for spread in (False, True):
        why = refusal(Mount("//server/share", "/mnt/lake", kind), spread=spread)
        assert why is not None
        assert "no commit in one step" in why


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
def test_nfs_is_for_a_cluster_which_needs_a_shared_folder(kind: str) -> None:
    mount = Mount("server:/export", "/mnt/lake", kind)
    assert refusal(mount, spread=True) is None
    why = refusal(mount, spread=False)
    assert why is not None
    assert "two machines do not see each other's commits in time" in why


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.mergerfs", "ceph", "apfs"])
def test_a_disk_will_do(kind: str) -> None:
    assert refusal(Mount("/dev/sda1", "/", kind), spread=False) is None


def test_a_path_lies_on_the_deepest_mount_and_the_last_of_two_in_one_place() -> None:
    root, outer, inner = Mount("a", "/", "ext4"), Mount("b", "/mnt", "nfs"), Mount("c", "/mnt/lake", "xfs")
    covering = Mount("d", "/mnt", "fuse.s3fs")
    mounts = [root, inner, outer, covering]
    assert mount_of("/mnt/lake/orders_daily", mounts) == inner
    assert mount_of("/mnt/lake", mounts) == inner
    assert mount_of("/mnt/lakeside", mounts) == covering
    assert mount_of("/srv", mounts) == root
    assert mount_of("/srv", [outer]) is None


def test_this_machines_own_mounts_are_read(tmp_path: Path) -> None:
    """A real mount, and a folder that is not there yet."""
    mounts = [Mount(each.device, each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    found = mount_of("/proc/lake", mounts)
    assert found is not None
    assert found.kind == "proc"
    assert refusal_of(str(tmp_path / "not" / "there"), spread=False) is None


def test_start_up_names_the_setting_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop_without_spark: Shop
) -> None:
    """The mount table alone is made up, for to mount one takes root and a bucket. A link does not hide it."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "bucket")
    real = psutil.disk_partitions(all=True)
    bucket = real[0]._replace(device="s3fs", mountpoint=str((tmp_path / "bucket").resolve()), fstype="fuse.s3fs")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [*real, bucket])
    with pytest.raises(SettingError, match=r"A setting is wrong: SHOP_LAKE: .*bucket is a mount of s3fs, an object store"):
        load_settings()
    ran = shop_without_spark("load", "2026-09-02")
    assert (ran.status, ran.out) == (2, "")
    assert "SHOP_LAKE" in ran.err
    assert "Traceback" not in ran.err
    assert list((tmp_path / "bucket").iterdir()) == []
    assert not (tmp_path / "dagster_home").exists()
