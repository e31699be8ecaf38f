#!/bin/sh
# Install what is missing of Debian's packages: "deps.sh build" to build, "deps.sh test" to run all tests as well.
set -eu
build="gcc libc6-dev musl-tools make meson ninja-build pkg-config libjansson-dev libinih-dev libseccomp-dev libevent-dev libmd-dev libsqlite3-dev python3 scdoc libpython3-dev"
test="clang clang-tidy clang-format cppcheck shellcheck codespell libcmocka-dev python3-pytest python3-jsonschema python3-yaml python3-strictyaml mypy curl openssl python3-numpy python3-pandas \
python3-matplotlib python3-scipy python3-pil tzdata util-linux passwd procps bubblewrap apparmor libclang-rt-14-dev"
case "${1:-}" in
build) want=$build ;;
test) want="$build $test" ;;
*)
	echo "usage: deps.sh build|test" >&2
	exit 2
	;;
esac
missing=""
for p in $want; do
	if [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" != installed ]; then
		missing="$missing $p"
	fi
done
# Clients of the tests come by npm; a newer one than Debian's may be there, outside of any package.
if [ "$1" = test ] && ! command -v npm >/dev/null; then
	missing="$missing npm"
fi
[ -n "$missing" ] || exit 0
sudo=""
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "deps.sh: missing packages:$missing; install them as root (apt-get install$missing)" >&2
		exit 1
	fi
	sudo=sudo
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of names
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
