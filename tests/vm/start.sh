#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the guest: unpack the second disk and run what it holds; its folder "out" goes to the third one.  As a unit of systemd,
# or as the first process of all.
if [ $$ = 1 ]; then
	export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
	exec </dev/null >/dev/ttyS0 2>&1
	mount -o remount,rw /
	mount -t tmpfs tmpfs /tmp
	mkdir -p /dev/shm /dev/pts
	mount -t tmpfs tmpfs /dev/shm
	mount -t devpts devpts /dev/pts
	ip link set lo up
fi
mkdir -p /vm/out
cd /vm || exit 1
tar -xf /dev/vdb
sh /vm/guest.sh
echo $? >/vm/out/status
tar -cf /dev/vdc -C /vm out
sync
exec systemctl poweroff -ff
