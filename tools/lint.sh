#!/bin/sh
# Static analysis; every line that it prints is a fault.  Needs build-clang (make lint makes it).
set -u
cd "$(dirname "$0")/.." || exit 2
bad=0
run() {
	if ! out=$("$@" 2>&1); then
		bad=1
		echo "$out"
	fi
}
run ninja -C build-clang
files=$(git ls-files 'src/*.c' 'tools/*.c')
# a file that several programs are made of is looked at once
mkdir -p build-clang/once
run /usr/bin/python3 -c 'import json
every = json.load(open("build-clang/compile_commands.json"))
json.dump(list({e["file"]: e for e in every}.values()), open("build-clang/once/compile_commands.json", "w"))'
tidy() { # as many processes as there are CPUs
	echo "$files" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build-clang/once 2>/dev/null
}
out=$(tidy | grep -E 'warning:|error:')
if [ -n "$out" ]; then
	bad=1
	echo "$out"
fi
# off: memleak, resourceLeak   cppcheck does not know auto_free and auto_fd; the sanitizers watch them
# off: readdirCalled, getgrnamCalled, getpwnamCalled   only the history has a thread of its own, and none of them is called by it
# off: nullPointer in listen.c   its library file says that accept4() takes no NULL address; zerodivcond in limits.c: the loop
#      ends before that
# shellcheck disable=SC2046 # a list of names
run cppcheck --suppress=memleak --suppress=resourceLeak --suppress=readdirCalled --suppress=getgrnamCalled --suppress=getpwnamCalled \
	--suppress=nullPointer:src/server/listen.c --suppress=zerodivcond:src/job/limits.c \
	--enable=warning,portability,performance --std=c11 --library=gnu --library=posix --inline-suppr --quiet \
	--error-exitcode=1 -I src -I include $(git ls-files 'src/*.c' | grep -v zygote)
# shellcheck disable=SC2046
run shellcheck $(git ls-files '*.sh') .ci/run
# shellcheck disable=SC2046
run codespell --quiet-level=3 --ignore-words tools/spelling-ignore.txt $(git ls-files '*.md' '*.scd' 'src/*.[ch]' 'include/*')
run /usr/bin/python3 tools/check_layers.py src
exit $bad
