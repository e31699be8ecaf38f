#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make the Debian packages of this tree: deb.sh OUT.  All that is needed to build is installed when it is missing.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: deb.sh OUT}
mkdir -p "$out"
out=$(cd "$out" && pwd)
version=$(sed -n "s/^project('[a-z]*', 'c', version: '\([^']*\)'.*/\1/p" "$top/meson.build")
tree=$out/cloche-$version
rm -rf "$tree" "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mkdir "$tree"
tar -C "$top" --exclude='./build*' --exclude=./.git --exclude=__pycache__ -cf - . | tar -C "$tree" -xf -
cp -r "$top/packaging/debian" "$tree/debian"
cp "$top/packaging/sysusers/cloche.conf" "$tree/debian/cloche.sysusers"
cd "$tree"
[ "$(dpkg-parsechangelog -S Version)" = "$version" ] || {
	echo "deb.sh: packaging/debian/changelog is not about version $version" >&2
	exit 1
}
if ! dpkg-checkbuilddeps 2>/dev/null; then
	if [ "$(id -u)" != 0 ]; then
		dpkg-checkbuilddeps
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get build-dep -y -qq --no-install-recommends ./ >/dev/null
fi
log=$out/build.log
DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym ${DEB_BUILD_OPTIONS:-}" dpkg-buildpackage -b -us -uc >"$log" 2>&1 || {
	tail -50 "$log" >&2
	exit 1
}
cd "$out"
rm -rf "$tree"
ls "$out"/*.deb
if command -v lintian >/dev/null; then
	lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$out"/*.changes
else
	echo "deb.sh: lintian is not installed, the packages are not checked" >&2
fi
