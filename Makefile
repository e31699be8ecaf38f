# A menu: each target is a few calls that you could type yourself.
MESON  ?= meson
PREFIX ?= /usr/local
VIA    ?= http
SAN    := -Db_sanitize=address,undefined -Db_lundef=false
export ASAN_OPTIONS  ?= strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1

all: build/build.ninja ## build build/cloche
	ninja -C build

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

hello: deps-build all ## install what is missing, build, run the first example
	build/cloche trigger --request examples/hello_world.json

check: deps-test ## install what the tests need, build, run all tests
	/usr/bin/python3 tests/check.py

check-via: deps-test all ## the attacks and the contract by another door: VIA=http, server or local
	CLOCHE_VIA=$(VIA) CLOCHE_BIN=$(CURDIR)/build/cloche /usr/bin/python3 -B -m pytest -q -p no:cacheprovider tests/attack
	CLOCHE_VIA=$(VIA) CLOCHE_BIN=$(CURDIR)/build/cloche /usr/bin/python3 -B -m pytest -q -p no:cacheprovider $(addprefix tests/product/test_,$(addsuffix .py,contract limits exit bad_input artifacts inside))

check-callers: deps-test all build-fail/build.ninja ## the long tests that `make check` runs as one caller, as root and as an ordinary user
	ninja -C build-fail cloche cloche-supervisor cloched cloche-door _cloche.abi3.so
	CLOCHE_EVERY_CALLER=1 CLOCHE_BIN=$(CURDIR)/build/cloche /usr/bin/python3 -B -m pytest -q -p no:cacheprovider -m once tests/product

asan: deps-test ## unit and product tests with ASan and UBSan in everything that is not inside a sandbox
	[ -f build-asan/build.ninja ] || CC=gcc $(MESON) setup build-asan $(SAN)
	ninja -C build-asan
	$(MESON) test -C build-asan --print-errorlogs --suite unit --suite fuzz
	CLOCHE_BIN=$(CURDIR)/build-asan/cloche /usr/bin/python3 -B -m pytest -q -p no:cacheprovider $(addprefix tests/product/test_,$(addsuffix .py,contract exit bad_input artifacts http http_wire http_tokens mcp mcp_http history tenants))

fuzz: deps-test ## a minute of libFuzzer for each parser
	[ -f build-fuzz/build.ninja ] || CC=clang $(MESON) setup build-fuzz $(SAN) -Dfuzz=true
	ninja -C build-fuzz
	$(MESON) test -C build-fuzz --suite fuzz --print-errorlogs

fidelity: deps-test all ## every script plain, cold and warm, compared (about half an hour)
	/usr/bin/python3 tests/fidelity/fidelity.py

soak: deps-test all ## 20,000 runs in a row and ten minutes of mixed traffic: nothing may grow
	/usr/bin/python3 tests/soak/soak.py

deb: deps-build ## the Debian packages, into build/deb
	packaging/deb.sh build/deb

check-vm: deps-test ## the packages and the tests in a Debian 12 guest with systemd and cgroup v2 (software emulation)
	/usr/bin/python3 tests/vm/run.py

lint: deps-test build-clang/build.ninja ## clang-tidy, clang's warnings, cppcheck, shellcheck, spelling, layers
	tools/lint.sh

bench: all ## what a run costs against plain python3, side by side
	/usr/bin/python3 bench/run.py

install: all ## DESTDIR= PREFIX=
	$(MESON) configure build -Dprefix=$(PREFIX)
	ninja -C build
	DESTDIR=$(DESTDIR) $(MESON) install -C build --no-rebuild

clean: ## remove what was built
	rm -rf build build-asan build-fuzz build-clang build-fail

deps-build: ; @tools/deps.sh build
deps-test: ; @tools/deps.sh test
build/build.ninja: ; $(MESON) setup build
build-fail/build.ninja: ; $(MESON) setup build-fail -Dwerror=true -Dfail_steps=true
build-clang/build.ninja: ; CC=clang $(MESON) setup build-clang -Dwerror=true

.PHONY: all help hello check check-via check-callers asan fuzz fidelity soak deb check-vm lint bench install clean deps-build deps-test
