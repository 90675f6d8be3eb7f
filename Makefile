# SPDX-License-Identifier: Apache-2.0
#
# One Makefile, no recursion into folders.  Read it top to bottom:
#   1 knobs   2 toolchain   3 what we build   4 how we build
#   5 test    6 lint        7 install & dist
#
# `make help` lists every target.  V=1 shows commands.
# SAN=address,undefined (or thread) builds into its own tree.

# ---------------------------------------------------------------- 1 knobs
PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
MANDIR     ?= $(PREFIX)/share/man
UNITDIR    ?= $(PREFIX)/lib/systemd/system
DESTDIR    ?=
PKG_CONFIG ?= pkg-config
PYTHON     ?= /usr/bin/python3
SAN        ?=
WERROR     ?=
V          ?= 0

# Only a tarball has the file: it may have been unpacked within a repository of something else.
VERSION := $(shell cat VERSION 2>/dev/null || git describe --tags --always --dirty 2>/dev/null || echo unknown)

# ------------------------------------------------------------ 2 toolchain
comma   := ,
VARIANT := $(if $(SAN),$(subst $(comma),-,$(SAN)),plain)$(if $(WERROR),-werror)
B       := build/$(VARIANT)
BIN     := $(if $(filter plain,$(VARIANT)),build/bin,$(B)/bin)
GEN     := build/gen

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	   -Wold-style-definition -Wpointer-arith -Wwrite-strings -Wformat=2 \
	   -Wvla -Wundef -Wcast-align=strict -Wimplicit-fallthrough $(if $(WERROR),-Werror)
HARDEN  := -fstack-protector-strong -fno-common -fPIE $(if $(SAN),,-D_FORTIFY_SOURCE=2)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)

CPPFLAGS += -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -I$(GEN)
UC_CFLAGS  = -std=gnu11 $(CFLAGS) $(WARN) $(HARDEN) $(SANFLAGS) -ffunction-sections -fdata-sections
UC_LDFLAGS = $(LDFLAGS) -pie -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--gc-sections $(SANFLAGS)

ifeq ($(V),0)
Q = @
say = @printf '  %-8s %s\n' $(1) $(2);
endif

# -------------------------------------------------------- 3 what we build
# Explicit and sorted.  A file that is not listed here is not built.
LIB_SRCS := \
	lib/base/buf.c \
	lib/base/err.c \
	lib/base/json.c \
	lib/base/log.c \
	lib/base/sha256.c \
	lib/base/size.c \
	lib/base/str.c \
	lib/base/uuid.c \
	lib/os/blk.c \
	lib/os/bounded.c \
	lib/os/clock.c \
	lib/os/dm.c \
	lib/os/fd.c \
	lib/os/loopdev.c \
	lib/os/mkfs.c \
	lib/os/mount.c \
	lib/os/notify.c \
	lib/os/path.c \
	lib/os/proc.c \
	lib/os/statfs.c \
	lib/os/unixsock.c \
	lib/rpc/arena.c \
	lib/rpc/call.c \
	lib/rpc/client.c \
	lib/rpc/conn.c \
	lib/rpc/grpc.c \
	lib/rpc/grpc_head.c \
	lib/rpc/h2.c \
	lib/rpc/h2_client.c \
	lib/rpc/h2_server.c \
	lib/rpc/http.c \
	lib/rpc/http_head.c \
	lib/rpc/jobs.c \
	lib/rpc/listener.c \
	lib/rpc/loop.c \
	lib/rpc/pbcheck.c \
	lib/rpc/pbdigest.c \
	lib/rpc/server.c \
	lib/rpc/status.c \
	lib/vol/branch_id.c \
	lib/vol/ctl.c \
	lib/vol/name.c \
	lib/vol/params.c \
	lib/vol/spec.c \
	lib/vol/split.c \
	lib/vol/state.c \
	lib/vol/store.c

PROTOS := \
	proto/csi.proto \
	proto/google/protobuf/timestamp.proto \
	proto/pluginregistration.proto \
	proto/google/protobuf/wrappers.proto

PROGRAMS := csi union-fs

csi_BIN       := union-csi
csi_PKGS      := blkid devmapper jansson libnghttp2 libprotobuf-c mount
csi_SRCS      := \
	csi/capability.c \
	csi/cli.c \
	csi/cli_mount.c \
	csi/cli_recover.c \
	csi/cli_volume.c \
	csi/controller.c \
	csi/daemon.c \
	csi/driver.c \
	csi/group.c \
	csi/identity.c \
	csi/inventory.c \
	csi/local.c \
	csi/local_branch.c \
	csi/local_create.c \
	csi/local_map.c \
	csi/local_recover.c \
	csi/local_up.c \
	csi/main.c \
	csi/metrics.c \
	csi/node.c \
	csi/node_publish.c \
	csi/node_stage.c \
	csi/op.c \
	csi/options.c \
	csi/pool.c \
	csi/readiness.c \
	csi/reconcile.c \
	csi/registration.c \
	csi/status.c \
	csi/target.c

union-fs_BIN  := union-fs
union-fs_PKGS := blkid jansson mount
union-fs_SRCS := \
	union-fs/attr.c \
	union-fs/branch.c \
	union-fs/cli.c \
	union-fs/clone.c \
	union-fs/creds.c \
	union-fs/ctl.c \
	union-fs/daemon.c \
	union-fs/dev.c \
	union-fs/file.c \
	union-fs/find.c \
	union-fs/freed.c \
	union-fs/gogo.c \
	union-fs/intent.c \
	union-fs/listing.c \
	union-fs/lower.c \
	union-fs/main.c \
	union-fs/make.c \
	union-fs/node.c \
	union-fs/node_dir.c \
	union-fs/objmap.c \
	union-fs/ops_dir.c \
	union-fs/ops_file.c \
	union-fs/ops_make.c \
	union-fs/ops_node.c \
	union-fs/ops_xattr.c \
	union-fs/options.c \
	union-fs/policy.c \
	union-fs/query.c \
	union-fs/remove.c \
	union-fs/rename.c \
	union-fs/rename_dir.c \
	union-fs/serve.c \
	union-fs/session.c \
	union-fs/target.c \
	union-fs/ufs.c \
	union-fs/view.c

# Debian's packages: to build and run; to test; to lint; to measure.
DEPS_build := e2fsprogs gcc libblkid-dev libc6-dev libdevmapper-dev libjansson-dev libmount-dev libnghttp2-dev \
	libprotobuf-c-dev make pkg-config protobuf-c-compiler protobuf-compiler
DEPS_test  := acl attr btrfs-progs fio git iproute2 libcmocka-dev man-db procps python3 python3-grpcio \
	python3-jsonschema python3-protobuf python3-pytest python3-pytest-xdist rsync sqlite3 systemd util-linux \
	xfsprogs
DEPS_lint  := clang clang-format clang-tidy cppcheck shellcheck
DEPS_bench := fio mergerfs
DEPS_vm    := busybox-static cpio kmod xz-utils

# --------------------------------------------------------- 4 how we build
BINS := $(foreach p,$(PROGRAMS),$(BIN)/$($(p)_BIN))
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.PHONY: all help clean
all: $(BINS)  ## build every program into build/bin/

# Installs what is missing when root asks for more than the programs themselves;
# otherwise prints the one command to run.
AUTO_DEPS := $(filter deps demo test% conformance lint bench fmt,$(MAKECMDGOALS))
# One at a time: apt-get does not wait for another one.
define need
@mkdir -p build; exec 9>build/.apt-lock; flock 9; missing=; for p in $(1); do \
  dpkg-query -W -f '$${db:Status-Status}' "$$p" 2>/dev/null | grep -qx installed || missing="$$missing $$p"; done; \
if [ -n "$$missing" ]; then \
  if [ "$$(id -u)" = 0 ] && [ -n "$(AUTO_DEPS)" ]; then \
    echo "  APT     $$missing"; \
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      $$missing; } >build/apt.log 2>&1 || { cat build/apt.log; exit 1; }; \
  else echo "missing packages; run: sudo apt-get install --no-install-recommends$$missing"; exit 1; fi; \
fi
endef
build/.deps-%: Makefile
	@mkdir -p build
	$(call need,$(DEPS_$*))
	@touch $@
.SECONDARY: build/.deps-build build/.deps-test build/.deps-lint build/.deps-bench build/.deps-vm

PKG_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(csi_PKGS) $(union-fs_PKGS))
VERSION_DEF = -DUC_VERSION='"$(VERSION)"'

# Rebuild when flags change, not only when files do.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(UC_CFLAGS) $(UC_LDFLAGS)' | cmp -s - $@ || \
	 echo '$(CC) $(CPPFLAGS) $(UC_CFLAGS) $(UC_LDFLAGS)' >$@
$(B)/version: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION)' | cmp -s - $@ || echo '$(VERSION)' >$@

GEN_C := $(PROTOS:proto/%.proto=$(GEN)/%.pb-c.c)
GEN_H := $(GEN_C:.c=.h)
$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h &: proto/%.proto | build/.deps-build
	@mkdir -p $(GEN)
	$(call say,PROTOC,$<)
	$(Q)protoc-c -Iproto --c_out=$(GEN) $<
.SECONDARY: $(GEN_C) $(GEN_H)

$(B)/%.o: %.c $(B)/flags | build/.deps-build $(GEN_H)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(UC_CFLAGS) -MMD -MP $(PKG_CFLAGS) -c -o $@ $<

$(B)/gen/%.o: $(GEN)/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(UC_CFLAGS) -MMD -MP $(PKG_CFLAGS) -w -c -o $@ $<

# The only object that knows the version, so that a commit rebuilds one file.
$(B)/lib/base/version.o: lib/base/version.c $(B)/flags $(B)/version
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(UC_CFLAGS) -MMD -MP $(VERSION_DEF) -c -o $@ $<

LIB_A    := $(B)/libuc.a
LIB_OBJS := $(LIB_SRCS:%.c=$(B)/%.o) $(B)/lib/base/version.o
GEN_OBJS := $(GEN_C:$(GEN)/%.c=$(B)/gen/%.o)
$(LIB_A): $(LIB_OBJS) $(GEN_OBJS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Each program is a thin main.o plus an archive of everything else, so the
# unit tests can link what the program links.
define program
$(1)_OBJS := $$($(1)_SRCS:%.c=$(B)/%.o)
$(1)_A    := $(B)/$(1).a
$$($(1)_A): $$(filter-out %/main.o,$$($(1)_OBJS))
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^
$(BIN)/$$($(1)_BIN): $(B)/$(1)/main.o $$($(1)_A) $(LIB_A)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(UC_CFLAGS) $$(UC_LDFLAGS) -o $$@ $$^ $$$$($(PKG_CONFIG) --libs $$($(1)_PKGS)) -lpthread
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

# ----------------------------------------------------------------- 5 test
# Sources are listed; tests are found.  Dropping the file in is the whole step.
UNIT_SRCS := $(sort $(shell find tests/unit -name 'test_*.c' 2>/dev/null))
UNIT_BINS := $(UNIT_SRCS:%.c=$(B)/%)
TEST_PKGS := cmocka $(csi_PKGS) $(union-fs_PKGS)
$(UNIT_SRCS:%.c=$(B)/%.o): | build/.deps-test
.SECONDARY: $(UNIT_SRCS:%.c=$(B)/%.o)

# A __wrap_foo() in a test, or in a header that it includes, *is* the request to wrap foo().
$(UNIT_BINS): $(B)/%: $(B)/%.o $(LIB_A) $(foreach p,$(PROGRAMS),$($(p)_A))
	$(call say,LD,$@)
	$(Q)$(CC) $(UC_CFLAGS) $(UC_LDFLAGS) -o $@ $< \
	  $$(nm $< | sed -n 's/.* T __wrap_/-Wl,--wrap=/p') \
	  -Wl,--start-group $(foreach p,$(PROGRAMS),$($(p)_A)) $(LIB_A) -Wl,--end-group \
	  $$($(PKG_CONFIG) --libs $(TEST_PKGS)) -lpthread

# A server and a client of lib/rpc that exist for tests/blackbox/test_rpc_*.py only.
ECHO_BINS := $(B)/tests/lib/echo_client $(B)/tests/lib/echo_server
$(GEN)/echo.pb-c.c $(GEN)/echo.pb-c.h &: tests/lib/echo.proto | build/.deps-build
	@mkdir -p $(GEN)
	$(call say,PROTOC,$<)
	$(Q)protoc-c -Itests/lib --c_out=$(GEN) $<
.SECONDARY: $(GEN)/echo.pb-c.c $(GEN)/echo.pb-c.h $(ECHO_BINS:=.o)
$(ECHO_BINS:=.o): | $(GEN)/echo.pb-c.h
$(ECHO_BINS): $(B)/%: $(B)/%.o $(B)/gen/echo.pb-c.o $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(UC_CFLAGS) $(UC_LDFLAGS) -o $@ $^ $$($(PKG_CONFIG) --libs $(csi_PKGS)) -lpthread

# Times CSI calls for tests/bench/run.py.
BENCH_CLIENT := $(B)/tests/bench/client
$(BENCH_CLIENT): $(B)/%: $(B)/%.o $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(UC_CFLAGS) $(UC_LDFLAGS) -o $@ $^ $$($(PKG_CONFIG) --libs $(csi_PKGS)) -lpthread

# Preloaded into programs under test: makes their n-th step fail, or kills them there.
FAULTINJECT := $(B)/tests/lib/faultinject.so
$(FAULTINJECT): tests/lib/faultinject.c $(B)/flags | build/.deps-build
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 $(CFLAGS) $(WARN) -fPIC -shared -o $@ $< -ldl

# The same messages for the tests' gRPC client.
PY_GEN := build/gen/python/csi_pb2.py build/gen/python/pluginregistration_pb2.py
build/gen/python/%_pb2.py: proto/%.proto | build/.deps-test
	@mkdir -p $(@D)
	$(call say,PROTOC,$@)
	$(Q)protoc -Iproto --python_out=$(@D) $<

.PHONY: test-tools
test-tools: $(ECHO_BINS) $(FAULTINJECT) $(PY_GEN)

# TESTS= chooses what pytest runs: files, or -k expressions with PYTEST_ARGS.
TESTS       ?= tests/blackbox
PYTEST_ARGS ?=
PYTEST_JOBS ?= 3
# A preloaded library comes before a sanitizer's runtime, which objects; so that comes first.
SAN_PRELOAD  = $(if $(SAN),$(shell $(CC) -print-file-name=$(if $(findstring thread,$(SAN)),libtsan.so,libasan.so)))
SAN_ENV      = $(if $(SAN),ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 SAN_PRELOAD=$(SAN_PRELOAD))

.PHONY: test test-unit test-blackbox test-sanitizers test-vm test-trixie conformance
test: test-unit test-blackbox  ## everything that needs only Debian's packages; as root
test-unit: $(UNIT_BINS) | build/.deps-test  ## cmocka tests: no root, no network
	@tests/unit/run $(B)/test-work/unit $(UNIT_BINS)
test-blackbox: all test-tools | build/.deps-test  ## pytest against the built programs, with real mounts; as root
	@BIN=$(abspath $(BIN)) BUILD=$(abspath $(B)) PYTHONDONTWRITEBYTECODE=1 $(SAN_ENV) unshare --mount --propagation private \
	  $(PYTHON) -m pytest -q -p no:cacheprovider -n $(PYTEST_JOBS) $(PYTEST_ARGS) $(TESTS)
test-sanitizers:  ## what sanitizers find most in, with each of them
	@tests/sanitizers
test-vm: all test-tools | build/.deps-test build/.deps-vm  ## what needs another kernel than this machine's, in VMs; as root
	@PYTHON=$(PYTHON) tests/vm/suite
test-trixie:  ## build and unit tests in a Debian 13 chroot
	@tests/trixie

GO ?= go
build/csi-sanity: tests/conformance/go.mod tests/conformance/go.sum
	$(call say,GO,$@)
	$(Q)cd tests/conformance && GOFLAGS=-mod=readonly $(GO) build -o $(abspath $@) \
	  github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
conformance: all build/csi-sanity | build/.deps-test  ## csi-sanity, built from its Go module, against the driver; as root
	@tests/conformance/run $(BIN) build/csi-sanity build/conformance

.PHONY: demo bench
demo: all  ## the main job, on two small disks, in two minutes; as root
	@tests/demo $(BIN) build/demo
bench: all test-tools $(BENCH_CLIENT) | build/.deps-test build/.deps-bench  ## the figures, as a table; as root
	@BIN=$(abspath $(BIN)) unshare --mount --propagation private $(PYTHON) tests/bench/run.py

.PHONY: deps
deps:  ## install the Debian packages that are missing for any target (as root), or print the one command
	@mkdir -p build
	$(call need,$(sort $(DEPS_build) $(DEPS_test) $(DEPS_lint) $(DEPS_bench) $(DEPS_vm)))
	@touch build/.deps-build build/.deps-test build/.deps-lint build/.deps-bench build/.deps-vm

# ----------------------------------------------------------------- 6 lint
C_FILES = $(LIB_SRCS) lib/base/version.c $(foreach p,$(PROGRAMS),$($(p)_SRCS))
H_FILES = $(sort $(wildcard lib/*/*.h $(addsuffix /*.h,$(PROGRAMS))))
SH_FILES = .ci/run tests/demo tests/sanitizers tests/trixie tests/unit/run tests/conformance/run \
	$(wildcard tests/lint/*.sh tests/vm/*)
TEST_C_FILES = $(UNIT_SRCS) $(wildcard tests/lib/*.[ch] tests/bench/*.c)
.PHONY: lint hdr-check fmt tidy
lint: build/.deps-lint build/.deps-test  ## warnings as errors, headers, format, layers, symbols, clang-tidy, cppcheck, shellcheck
	@$(MAKE) --no-print-directory WERROR=1 all hdr-check $(UNIT_SRCS:%.c=build/plain-werror/%.o)
	@echo "  LINT     format";  clang-format --dry-run -Werror $(C_FILES) $(H_FILES) $(TEST_C_FILES)
	@echo "  LINT     layers";  tests/lint/layers.sh
	@echo "  LINT     symbols"; tests/lint/symbols.sh build/plain-werror
	@echo "  LINT     size";    tests/lint/size.sh $(C_FILES) $(H_FILES)
	@echo "  LINT     clang-tidy"; printf '%s\n' $(C_FILES) | xargs -P 2 -n 1 sh -c 'exec clang-tidy --quiet \
	  -warnings-as-errors="*" "$$@" -- $(CPPFLAGS) $(PKG_CFLAGS) -std=gnu11 -DUC_VERSION="\"\""' tidy >build/tidy.log 2>&1 \
	  || { cat build/tidy.log; exit 1; }
	@echo "  LINT     cppcheck"; cppcheck --quiet -j 2 --std=c11 --error-exitcode=1 --inline-suppr \
	  --enable=warning,portability,performance --suppress=missingIncludeSystem --suppress=memleak \
	  --suppress='*:build/gen/*' -D_GNU_SOURCE -DUC_VERSION='""' -I. -Ibuild/gen $(C_FILES)
	@echo "  LINT     shellcheck"; shellcheck $(SH_FILES)
hdr-check: $(GEN_H)  ## every header compiles on its own
	@for h in $(H_FILES); do \
	  $(CC) $(CPPFLAGS) $(PKG_CFLAGS) -std=gnu11 $(WARN) -Werror -fsyntax-only -x c -include $$h /dev/null || exit 1; done
fmt: build/.deps-lint  ## clang-format in place
	@clang-format -i $(C_FILES) $(H_FILES) $(TEST_C_FILES)

# ------------------------------------------------------- 7 install & dist
MAN_8 := docs/man/union-csi.8 docs/man/union-fs.8
UNITS := deploy/systemd/union-csi.service
.PHONY: install uninstall dist
install: all  ## honours PREFIX, BINDIR, MANDIR, UNITDIR and DESTDIR
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(UNITDIR)
	install -m 0755 $(BINS) $(DESTDIR)$(BINDIR)
	ln -sf union-fs $(DESTDIR)$(BINDIR)/gogomergerfs
	install -m 0644 $(MAN_8) $(DESTDIR)$(MANDIR)/man8
	sed 's,/usr/local/bin/,$(BINDIR)/,' $(UNITS) >$(DESTDIR)$(UNITDIR)/union-csi.service
uninstall:  ## with the same variables
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,$(notdir $(BINS)) gogomergerfs)
	rm -f $(addprefix $(DESTDIR)$(MANDIR)/man8/,$(notdir $(MAN_8))) $(DESTDIR)$(UNITDIR)/union-csi.service
dist:  ## source tarball from HEAD, with its checksum
	@[ -e .git ] || { echo "dist: this is not a clone of the repository, which is what a tarball is made from" >&2; exit 1; }
	@mkdir -p build/dist
	@git archive --format=tar.gz --prefix=union-csi-$(VERSION)/ --add-virtual-file=union-csi-$(VERSION)/VERSION:$(VERSION) \
	  -o build/dist/union-csi-$(VERSION).tar.gz HEAD
	@cd build/dist && sha256sum union-csi-$(VERSION).tar.gz | tee union-csi-$(VERSION).tar.gz.sha256
clean:  ## remove build/
	$(Q)rm -rf build
help:  ## this text
	@sed -n 's/^\([a-z0-9-]*\):.*  ## /\1\t/p' Makefile | expand -t 16
.PHONY: FORCE
FORCE:

-include $(shell find $(B) -name '*.d' 2>/dev/null)
