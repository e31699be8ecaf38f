#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A bootable Debian 12 below the folder $1: disk.img, vmlinuz, initrd.  Kept until this file or the list of packages changes.
# What is fetched comes from where this machine's own apt gets Debian.
set -eu
here=$(dirname "$(readlink -f "$0")")
into=$1
mkdir -p "$into"
into=$(readlink -f "$into")
stamp=$(cat "$0" "$here/packages" "$here/start.sh" | sha256sum)
if [ "$(cat "$into/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "image.sh: making a system needs root" >&2
	exit 1
fi
tools=""
for p in mmdebstrap qemu-system-x86 e2fsprogs; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || tools="$tools $p"
done
if [ -n "$tools" ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	# shellcheck disable=SC2086 # a list of names
	apt-get install -y -qq --no-install-recommends $tools >/dev/null
fi
rm -rf "$into/stamp" "$into/root" "$into/disk.img"
# shellcheck disable=SC2016 # apt's own variables
apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
	grep ' bookworm' | sort -u >"$into/sources.list"
[ -s "$into/sources.list" ] || {
	echo "image.sh: apt knows no Debian 12 on this machine (apt-get indextargets)" >&2
	exit 1
}
mmdebstrap --mode=root --variant=apt --skip=cleanup/reproducible \
	--include="$(tr '\n' ',' <"$here/packages")" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	bookworm "$into/root" "$into/sources.list" >"$into/mmdebstrap.log" 2>&1 || {
	tail -20 "$into/mmdebstrap.log" >&2
	exit 1
}
root=$into/root
printf 'MODULES=list\nCOMPRESS=gzip\n' >"$root/etc/initramfs-tools/conf.d/vm"
printf '%s\n' virtio_pci virtio_blk ext4 crc32c_generic >>"$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u >>"$into/mmdebstrap.log" 2>&1
echo vm >"$root/etc/hostname"
printf '127.0.0.1 localhost vm\n' >"$root/etc/hosts"
printf '/dev/vda / ext4 defaults,noatime 0 1\n' >"$root/etc/fstab"
: >"$root/etc/machine-id"
rm -f "$root"/etc/resolv.conf
install -m 755 "$here/start.sh" "$root/usr/local/sbin/vm-start"
cat >"$root/etc/systemd/system/vm-start.service" <<'UNIT'
[Unit]
Description=Run what the second disk holds, then power off
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/vm-start
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
cat >"$root/etc/systemd/system/vm-start.timer" <<'UNIT'
[Timer]
OnBootSec=1
AccuracySec=1
[Install]
WantedBy=multi-user.target
UNIT
ln -sf ../vm-start.timer "$root/etc/systemd/system/multi-user.target.wants/vm-start.timer"
# What would change the system beside a test.
for unit in systemd-tmpfiles-clean.timer apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer dpkg-db-backup.timer \
	logrotate.timer systemd-timesyncd.service systemd-networkd.service networking.service getty@tty1.service \
	serial-getty@ttyS0.service; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
cp "$root"/boot/vmlinuz-* "$into/vmlinuz"
cp "$root"/boot/initrd.img-* "$into/initrd"
truncate -s 6G "$into/disk.img"
mke2fs -q -t ext4 -E lazy_itable_init=1 -d "$root" "$into/disk.img"
rm -rf "$root"
echo "$stamp" >"$into/stamp"
