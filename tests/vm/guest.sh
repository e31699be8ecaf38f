#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the guest, from /vm.  With systemd: the package's life, then the tests as root, as a user with a delegated subtree, as one
# without.  Without it ("plain", we are what the first process runs): as root by cgroup v2, or by v1.  Writes out/steps ("ok
# NAME", "failed NAME") and a JUnit report for each group of tests.
out=/vm/out
groups=
only=
# shellcheck source=/dev/null
. /vm/chosen
export DEBIAN_FRONTEND=noninteractive CLOCHE_BIN=/usr/bin/cloche CLOCHE_PATIENCE=5 PYTHONDONTWRITEBYTECODE=1
if [ "$(id -u)" = 0 ]; then
	chmod -R a+rX /vm
	chmod 1777 $out
fi
step() {
	name=$1
	shift
	if "$@" >$out/last.log 2>&1; then
		echo "ok $name" >>$out/steps
		echo "== ok: $name, $(cut -d. -f1 /proc/uptime) s after the start"
	else
		echo "failed $name" >>$out/steps
		echo "== failed: $name, $(cut -d. -f1 /proc/uptime) s after the start"
		cat $out/last.log
		[ ! -d /run/systemd/system ] || journalctl -q -b -t cloche -t systemd -n 20 --no-pager
	fi
}
cloche() { timeout 120 /usr/bin/cloche "$@"; }
packages=$(for deb in /vm/deb/*.deb; do dpkg-deb -f "$deb" Package; done | tr '\n' ' ')
# Every path that a package may have put or left somewhere, without what changes by itself.
paths() {
	find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /vm -o -path /var/log -o \
		-path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/cache -o -name '__pycache__' \) -prune -o -print | sort
}
# As with AppArmor 4; its parser is not here, so the profile is put in place and not loaded.
profile() {
	touch /etc/apparmor.d/abi/4.0
	install && [ -e /etc/apparmor.d/cloche ] && remove && [ ! -L /etc/apparmor.d/cloche ] && purge
	r=$?
	rm /etc/apparmor.d/abi/4.0
	return $r
}
same_paths() {
	paths >$out/now
	diff "$1" $out/now
}
install() { dpkg -i /vm/deb/*.deb; }
upgrade() {
	mkdir -p /var/tmp/next
	for deb in /vm/deb/*.deb; do
		rm -rf /var/tmp/next/tree
		dpkg-deb -R "$deb" /var/tmp/next/tree
		sed -i -E 's/^Version: (.*)/Version: \1+1/; s/\(= ([^)]*)\)/(= \1+1)/g; /^Built-Using/d' /var/tmp/next/tree/DEBIAN/control
		dpkg-deb -b /var/tmp/next/tree /var/tmp/next/ || return 1
	done
	timeout 120 systemctl start cloche.socket && cloche trigger --server /run/cloche/cloche.sock --request /vm/tree/examples/hello_world.json || return 1
	dpkg -i /var/tmp/next/*.deb || return 1
	rm -rf /var/tmp/next
	# it goes on serving
	systemctl is-active cloche.socket && cloche trigger --server /run/cloche/cloche.sock --request /vm/tree/examples/hello_world.json || return 1
	timeout 150 systemctl stop cloche.socket cloche.service
}
works() {
	cloche trigger --request /vm/tree/examples/hello_world.json | grep -q '"return_code": 1' && cloche doctor && getent group cloche &&
		! systemctl is-enabled cloche.socket && ! systemctl is-active cloche.socket
}
# shellcheck disable=SC2086 # a list of names
remove() {
	dpkg -r $packages && [ ! -e /usr/bin/cloche ] && ! pgrep cloche
}
# shellcheck disable=SC2086
purge() {
	dpkg -P $packages && ! find /etc /var/lib -path /var/lib/dpkg -prune -o -name '*cloche*' -print | grep .
}
pytest() {
	report=$1
	shift
	(cd /vm/tree && pytest_here "$report" "$@")
}
pytest_here() {
	report=$1
	shift
	echo "== $report, $(cut -d. -f1 /proc/uptime) s after the start"
	python3 -B -m pytest -q -p no:cacheprovider -p no:warnings --tb=short --junitxml="$out/$report.xml" ${only:+-k "$only"} "$@"
}
wanted() {
	case " $groups " in
	*" $1 "*) true ;;
	*) false ;;
	esac
}
in_full() { cloche doctor && cloche doctor --json | grep -q "control group ($1)"; }
# Every unit test that asks for control groups v1, by the name that it has in make check.
units_v1() {
	for name in sandbox_cgroup sandbox_cgroup_host; do
		step "cloche:unit / $name" /vm/tree/build-fail/tests/unit/test_$name
	done
}
mount_v2() { mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
mount_v1() {
	mount -t tmpfs tmpfs /sys/fs/cgroup || return 1
	for list in memory pids cpu,cpuacct; do
		mkdir /sys/fs/cgroup/$list || return 1
		mount -t cgroup -o $list cgroup /sys/fs/cgroup/$list || return 1
	done
	ln -s cpu,cpuacct /sys/fs/cgroup/cpu && ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
}
plain() {
	step "control groups v2 are mounted" mount_v2
	step "root without systemd has everything in full, by cgroup v2" in_full v2
	pytest plain tests/hosts/test_cgroup2.py
}
plain_v1() {
	step "control groups v1 are mounted" mount_v1
	step "root without systemd has everything in full, by cgroup v1" in_full v1
	units_v1
}
if [ "${1:-}" = pytest ]; then # the same in another user's hands
	shift
	pytest "$@"
	exit
fi
if [ $PPID = 1 ] && ! [ -d /run/systemd/system ]; then
	install >/dev/null 2>&1
	if wanted plain; then
		plain
	else
		plain_v1
	fi
	echo "== done, $(cut -d. -f1 /proc/uptime) s after the start"
	exit 0
fi
useradd -m -s /bin/sh tester
useradd -m -s /bin/sh plain # two users: limits of processes count by user, and their tests run at the same time
loginctl enable-linger tester
if wanted package; then
	install >/dev/null 2>&1
	purge >/dev/null 2>&1 # what any installation changes once (caches, the group)
	paths >$out/before
	step "the package installs" install
	step "the package works" works
	step "the package is upgraded, and its server goes on serving" upgrade
	step "the package is removed" remove
	step "the package is purged" purge
	step "where AppArmor restricts user namespaces, the profile comes and goes with the package" profile
	step "nothing is left of it" same_paths $out/before
fi
step "the package is there for the tests" install
# An address beside lo's, for what looks for one outside; it leads nowhere.
ip link add outside type dummy && ip address add 192.0.2.2/24 dev outside && ip link set outside up
uid=$(id -u tester)
own="XDG_RUNTIME_DIR=/run/user/$uid DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$uid/bus"
# It looks for what a build folder has.
installed="--deselect tests/attack/test_fail_steps.py::test_the_product_can_not_fail_on_purpose"
# Its control needs a setuid program of root's, which an ordinary user can't make.
ordinary="--deselect tests/attack/test_attack_files.py::test_control[setuid-program]"
wanted hosts-root && CLOCHE_HOSTS_ROWS=$out/hosts-rows.json pytest hosts-root tests/hosts
wanted product-root && pytest product-root tests/product/test_limits.py tests/product/test_lifecycle.py
# shellcheck disable=SC2086 # lists of words
wanted attack-root && CLOCHE_CALLER=root pytest attack-root tests/attack $installed
# shellcheck disable=SC2086
wanted attack-delegated && setpriv --reuid tester --regid tester --init-groups env $own systemd-run -q --user --scope -p Delegate=yes \
	env CLOCHE_CALLER=user sh /vm/guest.sh pytest attack-delegated tests/attack $installed $ordinary >$out/attack-delegated.log 2>&1 &
wanted attack-user && su -l plain -c "CLOCHE_CALLER=user sh /vm/guest.sh pytest attack-user tests/attack $installed $ordinary"
wait
cat $out/attack-delegated.log 2>/dev/null
echo "== done, $(cut -d. -f1 /proc/uptime) s after the start"
