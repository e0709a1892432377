#!/bin/sh
# The first process of a machine of its own; see machine.py. Runs in new namespaces of mounts,
# processes, hosts and network.
#
#   machine.sh LOWER BASE COMMAND...
#
# LOWER is a folder with a Debian system that stays as it is, BASE an empty folder.
set -eu
lower=$1 base=$2
shift 2

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
cd "$base/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
    umount sys/fs/cgroup
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
for folder in run tmp dev; do
    mount -t tmpfs -o mode=755 tmpfs "$folder"
done
chmod 1777 tmp
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up 2>/dev/null || true
mkdir .before
pivot_root . .before
cd /
# Only now is the file there by which the machine is known to be one.
exec env -i container=other LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c 'umount -l /.before && rmdir /.before && : >/run/machine && exec "$@"' sh "$@"
