"""The machine's memory, on made-up trees of ``/proc`` and ``/sys`` as different kernels and
containers show them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gateway.instance.memory import host_memory

_MIB = 1024 * 1024
#: What version 1 says where there is no limit.
_NONE = 9223372036854771712
_INSTALLED = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

_V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
_V1_OTHER = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
_V2 = "29 23 0:25 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, groups: str, mounts: str, limits: Mapping[str, object]) -> Path:
    """A file system with the two files of ``/proc/self`` and these limit files below
    ``/sys/fs/cgroup``.
    """
    own = root / "proc/self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(groups)
    (own / "mountinfo").write_text("23 1 0:5 / / rw - ext4 /dev/root rw\n" + mounts)
    for name, value in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def test_without_control_groups_it_is_what_is_installed(tmp_path: Path) -> None:
    assert host_memory.memory(tmp_path) == _INSTALLED


def test_version_1(tmp_path: Path) -> None:
    groups = "5:memory:/kubepods/pod1/abc\n2:cpu:/other\n"
    limits = {
        "memory/kubepods/pod1/abc/memory.limit_in_bytes": 512 * _MIB,
        "memory/memory.limit_in_bytes": _NONE,
    }
    assert (
        host_memory.memory(tree(tmp_path, groups, _V1_OTHER + _V1.format(root="/"), limits))
        == 512 * _MIB
    )


def test_version_1_unlimited(tmp_path: Path) -> None:
    limits = {"memory/a/memory.limit_in_bytes": _NONE, "memory/memory.limit_in_bytes": _NONE}
    assert (
        host_memory.memory(tree(tmp_path, "5:memory:/a\n", _V1.format(root="/"), limits))
        == _INSTALLED
    )


def test_version_2(tmp_path: Path) -> None:
    limits = {
        "system.slice/stomp-gateway.service/memory.max": 256 * _MIB,
        "system.slice/memory.max": "max",
    }
    groups = "0::/system.slice/stomp-gateway.service\n"
    assert host_memory.memory(tree(tmp_path, groups, _V2.format(root="/"), limits)) == 256 * _MIB


def test_version_2_unlimited(tmp_path: Path) -> None:
    assert (
        host_memory.memory(tree(tmp_path, "0::/a\n", _V2.format(root="/"), {"a/memory.max": "max"}))
        == _INSTALLED
    )


def test_the_limit_of_a_group_around_counts(tmp_path: Path) -> None:
    limits = {"outer/inner/memory.max": "max", "outer/memory.max": 128 * _MIB}
    assert (
        host_memory.memory(tree(tmp_path, "0::/outer/inner\n", _V2.format(root="/"), limits))
        == 128 * _MIB
    )


def test_in_a_container_with_a_namespace_of_its_own(tmp_path: Path) -> None:
    assert (
        host_memory.memory(
            tree(tmp_path, "0::/\n", _V2.format(root="/"), {"memory.max": 300 * _MIB})
        )
        == 300 * _MIB
    )


def test_in_a_container_that_shows_the_path_of_the_host(tmp_path: Path) -> None:
    groups = "5:memory:/docker/abc\n"
    limits = {"memory/memory.limit_in_bytes": 200 * _MIB}
    assert (
        host_memory.memory(tree(tmp_path, groups, _V1.format(root="/docker/abc"), limits))
        == 200 * _MIB
    )


def test_in_a_group_below_the_one_that_is_mounted(tmp_path: Path) -> None:
    limits = {
        "memory/memory.limit_in_bytes": _NONE,
        "memory/deeper/memory.limit_in_bytes": 100 * _MIB,
    }
    groups = "5:memory:/docker/abc/deeper\n"
    assert (
        host_memory.memory(tree(tmp_path, groups, _V1.format(root="/docker/abc"), limits))
        == 100 * _MIB
    )


def test_a_path_that_leads_out_of_the_mount_counts_as_its_root(tmp_path: Path) -> None:
    assert (
        host_memory.memory(
            tree(tmp_path, "0::/../sibling\n", _V2.format(root="/"), {"memory.max": 90 * _MIB})
        )
        == 90 * _MIB
    )


def test_both_versions_at_once(tmp_path: Path) -> None:
    mounts = _V1.format(root="/") + _V2.format(root="/").replace(
        "/sys/fs/cgroup ", "/sys/fs/cgroup/unified "
    )
    limits = {"memory/a/memory.limit_in_bytes": 80 * _MIB, "unified/memory.max": "max"}
    assert host_memory.memory(tree(tmp_path, "4:memory:/a\n0::/\n", mounts, limits)) == 80 * _MIB


def test_a_limit_above_what_is_installed_changes_nothing(tmp_path: Path) -> None:
    assert (
        host_memory.memory(
            tree(tmp_path, "0::/a\n", _V2.format(root="/"), {"a/memory.max": 2 * _INSTALLED})
        )
        == _INSTALLED
    )


def test_budget_and_java_heaps_stay_within_the_share() -> None:
    for memory in (64 * _MIB, 1000 * _MIB + 1, 24 * 1024 * _MIB):
        budget = host_memory.default_budget(memory)
        assert 0 < budget + host_memory.java_heaps(memory, budget) <= memory * 60 // 100
        assert host_memory.java_heaps(memory, budget) > 0
    assert host_memory.java_heaps(1000, 600) == host_memory.java_heaps(1000, 900) == 0


def test_of_this_machine() -> None:
    assert 0 < host_memory.memory() <= _INSTALLED
