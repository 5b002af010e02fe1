# SPDX-License-Identifier: BSD-3-Clause
# Tutti. `make` builds, `make demo` runs the main job, `make check` passes all
# tests; the last two install what is missing first (tools/setup).
#
#   B=dir       builds elsewhere          V=1       shows the commands
#   CC=clang    another compiler          OPT=-O0   other optimisation
#   WERROR=1    warnings are errors       JOBS=2    how much at a time
#   SAN=address,undefined | thread        builds with sanitizers

B ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
VERSION := 0.1.0
SOVERSION := 0
JOBS ?= 2
FUZZ_SECONDS ?= 60

OPT ?= -O2
CFLAGS ?= -g $(OPT)
WARN := -Wall -Wextra -Wundef -Wshadow -Wstrict-prototypes \
        -Wmissing-prototypes -Wvla -Wpointer-arith
# -ffp-contract=off: the bits of a sum must not depend on the compiler.
FLAGS = -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -fPIC -fvisibility=hidden \
        -ffp-contract=off -pthread $(WARN) $(CPPFLAGS) $(OPTIONAL) $(CFLAGS) $(HOT) \
        $(if $(SAN),-fsanitize=$(SAN) $(if $(findstring undefined,$(SAN)),$(CASTS)) \
                    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
# What clang's `undefined` has, and GCC's has not.
CASTS := -fsanitize=float-cast-overflow -fno-sanitize-recover=float-cast-overflow
ALL_CFLAGS = $(FLAGS) $(if $(WERROR),-Werror)
# Libraries that each serve one part; TT_HAVE_NAME is 0 or 1. UCX and
# ipsec-mb are not linked.
have = $(shell pkg-config --exists $(1) 2>/dev/null && echo 1 || echo 0)
HAVE_CLP := $(call have,clp)
HAVE_XML2 := $(call have,libxml-2.0)
HAVE_OPENSSL := $(call have,"openssl >= 3.0")
HAVE_UCX := $(call have,"ucx >= 1.12")
# It has no file for pkg-config.
HAVE_IPSEC_MB := $(if $(wildcard /usr/include/intel-ipsec-mb.h),1,0)
FOUND := $(if $(filter 1,$(HAVE_CLP)),clp) \
         $(if $(filter 1,$(HAVE_XML2)),libxml-2.0) \
         $(if $(filter 1,$(HAVE_OPENSSL)),openssl) \
         $(if $(filter 1,$(HAVE_UCX)),ucx)
OPTIONAL := $(foreach X,CLP XML2 OPENSSL UCX IPSEC_MB,-DTT_HAVE_$X=$(HAVE_$X)) \
            $(foreach P,$(FOUND),$(shell pkg-config --cflags $P))
LDLIBS := $(foreach P,$(filter-out ucx,$(FOUND)),$(shell pkg-config --libs $P)) \
          -pthread -ldl -lm
# There are many test programs, and it links them in half of the time.
GOLD := $(if $(FUZZ_LINK),,$(if $(shell command -v ld.gold),-fuse-ld=gold))
CMOCKA = $(shell pkg-config --libs cmocka 2>/dev/null || echo -lcmocka)

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

NCCL_SRC := $(sort $(wildcard bind/nccl/*.c))
HEADERS := include/tutti.h include/tutti_partial.h include/tutti_plan.h
LIB_SRC := $(sort $(wildcard src/*/*.c src/*/*/*.c))
CLI_SRC := $(sort $(wildcard cli/*.c))
EXAMPLE_SRC := $(sort $(wildcard examples/*.c))
TEST_SRC := $(sort $(wildcard tests/unit/*.c tests/prop/*.c tests/fault/*.c \
                              tests/proc/*.c tests/soak/*.c tests/gpu/*.c))
TORCH_TESTS := $(sort $(wildcard tests/torch/*_test.py))
PYTHON_TESTS := $(sort $(wildcard tests/python/*_test.py))
TEST_SH := $(filter-out %/lib.sh %/lib_hosts.sh, \
                        $(sort $(wildcard tests/*/*.sh)))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.c))
BENCH_SRC := $(wildcard bench/papers/*.c bench/scale/*.c bench/stragglers/*.c \
             bench/strangers/*.c bench/survive/*.c) bench/peers/line.c \
             bench/peers/roofline.c
SUPPORT_SRC := $(sort $(wildcard tests/support/*.c))

LIB_OBJ := $(LIB_SRC:%.c=$B/%.o) $B/src/device/ptx.o
NCCL_OBJ := $(NCCL_SRC:%.c=$B/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$B/%.o) $B/cli/page.o $B/cli/completion.o
# What a call must give: for the cli, tests and benches.
REFERENCE := $B/cli/reference.o
SUPPORT_OBJ := $(SUPPORT_SRC:%.c=$B/%.o) $(REFERENCE)
# A GPU driver without a GPU; tests that have none load it.
STANDIN := $B/tests/support/cuda/libcuda.so.1
STANDIN_OBJ := $B/tests/support/cuda/standin.o $B/tests/support/cuda/arithmetic.o
EXAMPLES := $(EXAMPLE_SRC:%.c=$B/%)
BENCHES := $(BENCH_SRC:%.c=$B/%)
TESTS := $(TEST_SRC:%.c=$B/%)
FUZZ := $(FUZZ_SRC:%.c=$B/%)

# Tests of benchmarks and of the lab, a model, and what runs for long, for `make
# check-long`.
LONG_SH := tests/proc/bare.sh tests/proc/debs.sh tests/proc/lab.sh \
           tests/proc/pair.sh tests/proc/papers.sh \
           tests/proc/peers.sh tests/proc/perfetto.sh tests/proc/truth.sh \
           tests/model/epochs.sh
LONG_TESTS := $B/tests/soak/soak_test

# What `make check` runs once more: with ASan and UBSan the unit, fault and fuzz
# tests, with TSan all tests that make threads, and in both what is named in
# _MORE (a source) but not what is named in _SLOW.
ASAN_MORE := tests/proc/conformance_test.c
ASAN_SLOW := tests/fault/stranger_test.c tests/fault/mesh_test.c \
             tests/fault/liveness_test.c tests/fault/frozen_test.c \
             tests/fault/outage_test.c tests/fault/open_test.c \
             tests/fault/gpu_test.c tests/unit/net_test.c \
             tests/unit/predict_test.c
TSAN_MORE := tests/unit/link_test.c tests/fault/open_test.c \
             tests/proc/status_test.c tests/proc/status_partial_test.c
TSAN_SLOW := tests/fault/reach_test.c tests/fault/shrink_test.c \
             tests/fault/grow_test.c tests/fault/outage_test.c \
             tests/fault/expel_test.c tests/fault/fault_test.c \
             tests/proc/replan_test.c
# A GPU called off reads memory that the host writes already, for nothing.
TSAN_NOT := tests/fault/gpu_test.c
ASAN_TESTS := $(filter-out $(ASAN_SLOW),$(ASAN_MORE) $(FUZZ_SRC) \
                  $(filter tests/unit/% tests/fault/%,$(TEST_SRC)))
TSAN_TESTS := $(filter-out $(TSAN_SLOW) $(TSAN_NOT),$(TSAN_MORE) \
                  $(shell grep -lsE 'pthread_create|thrd_create' $(TEST_SRC)))

.PHONY: all nccl tests test-objects clean setup demo demo-torch check check-long \
        check-deps check-comments \
        report-deps check-format check-header format docs fuzz torch check-torch check-python \
        bench-pair bench-peers bench-papers bench-scale install uninstall FORCE
.SECONDARY:

all: $B/libtutti.a $B/libtutti.so $B/libnccl-net-tutti.so $B/tutti \
     $B/man/tutti.1 $(EXAMPLES)
tests: $(TESTS) $(FUZZ) $(BENCHES)
test-objects: $(TESTS:=.o) $(FUZZ:=.o) $(BENCHES:=.o) $(SUPPORT_OBJ) \
              $(STANDIN_OBJ)

$B/libtutti.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$B/libtutti.so.$(VERSION): $(LIB_OBJ) src/core/tutti.map
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libtutti.so.$(SOVERSION) \
	    -Wl,--version-script=src/core/tutti.map -o $@ $(LIB_OBJ) $(LDLIBS)

$B/libtutti.so: $B/libtutti.so.$(VERSION)
	$(Q)ln -sf libtutti.so.$(VERSION) $B/libtutti.so.$(SOVERSION)
	$(Q)ln -sf libtutti.so.$(SOVERSION) $@

# The net plugin for NCCL finds libtutti.so beside it. NCCL unloads plugins, but
# Tutti's threads go on.
NCCL_RPATH = -Wl,-rpath,'$$ORIGIN'
nccl: $B/libnccl-net-tutti.so
$B/libnccl-net-tutti.so: $(NCCL_OBJ) $B/libtutti.so
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,nodelete \
	    $(NCCL_RPATH) -o $@ $(NCCL_OBJ) -L$B -ltutti -pthread

$B/tests/proc/nccl_test: | $B/libnccl-net-tutti.so

$B/tutti: $(CLI_OBJ) $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The pages of all commands, too.
$B/man/tutti.1: tools/manpages $B/tutti
	$(call say,MAN,$(@D))
	$(Q)tools/manpages $B/tutti $(@D)

$(EXAMPLES) $(BENCHES): $B/%: $B/%.o $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$B/bench/peers/roofline: $B/bench/peers/data.o $(REFERENCE)
$B/bench/strangers/strangers: $B/tests/support/doors.o

$(filter-out $B/tests/gpu/%,$(TESTS)) $(FUZZ): $B/tests/%: $B/tests/%.o $(SUPPORT_OBJ) $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(GOLD) $(LDFLAGS) $(FUZZ_LINK) -o $@ $^ $(CMOCKA) $(LDLIBS)

$(TESTS): | $(STANDIN)
# It is carried to machines that lack the libraries of other parts.
$B/tests/gpu/kernels_test: $B/tests/gpu/kernels_test.o $B/tests/support/gpus.o \
                           $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--as-needed -o $@ $^ $(CMOCKA) $(LDLIBS)
$(STANDIN): $(STANDIN_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^ -lm

# The kernels are the only loops worth -O3, also where CFLAGS are somebody else's.
$B/src/walk/kernels.o: private HOT = $(if $(filter -O2,$(CFLAGS)),-O3)

$B/%.o: %.c $B/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(filter tests/%,$<),-Itests) \
	    $(if $(filter tests/% bench/%,$<),-I.) -MMD -MP \
	    -c -o $@ $<

# The page of `tutti view` and the scripts of `tutti completion` go into the program.
$B/cli/page.o: $(wildcard share/view/*)
$B/cli/completion.o: $(wildcard share/completion/*)
# The kernels for GPUs go into the library.
$B/src/device/ptx.o: src/device/kernels.ptx
$B/%.o: %.S $B/flags
	$(call say,AS,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -c -o $@ $<

# Other flags, other objects; the file changes only when the flags do.
$B/flags: FORCE
	@mkdir -p $B
	@echo '$(CC) $(FLAGS)' | cmp -s - $@ || echo '$(CC) $(FLAGS)' >$@

-include $(LIB_OBJ:.o=.d) $(NCCL_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(SUPPORT_OBJ:.o=.d) \
         $(STANDIN_OBJ:.o=.d) \
         $(EXAMPLES:=.d) $(BENCHES:=.d) $B/bench/peers/data.d $(TESTS:=.d) \
         $(FUZZ:=.d)

setup:
	$(Q)tools/setup check

# A second make, so that what tools/setup has just installed is found. It gets
# -j unless the caller gave one.
again = $(MAKE) --no-print-directory \
        $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

demo:
	$(Q)tools/setup demo
	+$(Q)$(again) all
	$B/tutti run -n 4 $B/examples/digits

# The programs of `make check`, in the order in which they start: those that take a
# second or two stand last, so that all processors have work to the end. What follows
# the -- runs when the machine is quiet again. Many wait more than they work, so
# three more than JOBS of them run at a time.
CHECKS := "tools/check-build clang" \
          tools/check-deps "tools/check-deps --self-test" \
          tools/check-comments "tools/check-comments --self-test" \
          tools/check-format \
          tools/check-header tools/check-symbols "tools/ptx --check" \
          tools/check-docs \
          "tools/check-docs --self-test" \
          $(TORCH_TESTS:%="tools/torch test $B %") \
          $(TSAN_TESTS:%.c=$B/tsan/%) \
          $(filter-out $(LONG_SH),$(TEST_SH)) \
          $(PYTHON_TESTS:%="tools/python test $B %") \
          $(ASAN_TESTS:%.c=$B/asan/%) $(FUZZ) \
          $(filter-out $(LONG_TESTS),$(TESTS)) \
          -- "tools/check-tree $B/tree"

# Tells for how long the phase $(1) ran, which ends here.
took = $(Q)now=$$(date +%s); echo "$(1): $$((now - $$(cat $B/phase))) s"; \
    echo $$now >$B/phase

check:
	$(Q)mkdir -p $B && date +%s >$B/phase
	$(Q)tools/setup check
	$(call took,tools/setup)
	$(Q)tools/check-tree --before $B/tree
	+$(Q)$(again) -k WERROR=1 all tests || \
	    { echo "0 passed, 1 failed (the build)"; exit 1; }
	$(call took,the build)
	+$(Q)$(again) -k B=$B/asan SAN=address,undefined OPT='-O1 -g1' \
	    $(ASAN_TESTS:%.c=$B/asan/%) || true
	$(call took,the build with ASan and UBSan)
	+$(Q)MAX_JOBS=$(JOBS) tools/torch build $B & \
	    $(again) -k B=$B/tsan SAN=thread OPT='-O1 -g1' \
	    $B/tsan/tutti $(TSAN_TESTS:%.c=$B/tsan/%); wait
	$(call took,the builds with TSan and for torch)
	$(Q)B=$B JOBS=$$(($(JOBS) + 3)) tools/run-tests $(CHECKS)

# What takes long and is left out above, minutes more.
LONG := $(LONG_SH) $(LONG_TESTS) $(ASAN_SLOW:%.c=$B/asan/%) \
        $(patsubst %.c,$B/tsan/%,tests/proc/conformance_test.c $(TSAN_SLOW))

check-long: all tests
	+$(Q)$(again) B=$B/asan SAN=address,undefined OPT='-O1 -g1' \
	    $B/asan/tests/fault/memory_test $(filter $B/asan/%,$(LONG))
	+$(Q)$(again) B=$B/tsan SAN=thread OPT='-O1 -g1' $(filter $B/tsan/%,$(LONG))
	+$(Q)MAX_JOBS=$(JOBS) tools/torch build $B
	$(Q)B=$B tools/run-tests -t 3600 $(LONG) \
	    "env TT_ROUNDS=20 $B/tests/prop/chaos_test" \
	    "env TT_MINUTES=$(or $(TT_MINUTES),30) $B/tests/soak/churn_test" \
	    "env TT_LONG=1 $B/tests/fault/memory_test" \
	    "env TT_LONG=1 $B/asan/tests/fault/memory_test" \
	    "env TT_LONG=1 $B/tests/fault/gpu_test" \
	    "env TT_LONG=1 tools/torch test $B tests/torch/as_gloo_test.py" \
	    "env TT_LONG=1 tests/proc/drift.sh" "tools/check-docs --long" \
	    "tools/torch test $B tests/torch/wheels_long.py"

# The PyTorch backend, for PYTHON's torch (see tools/torch).
torch:
	+$(Q)MAX_JOBS=$(JOBS) tools/torch build $B

# The example of training by torchrun, with Gloo and with Tutti.
demo-torch:
	$(Q)tools/torch install $B
	+$(Q)MAX_JOBS=$(JOBS) tools/torch build $B
	$(Q)tools/demo-torch $B

check-python: all
	$(Q)B=$B JOBS=$(JOBS) tools/run-tests \
	    $(PYTHON_TESTS:%="tools/python test $B %")

check-torch: torch
	$(Q)B=$B JOBS=1 tools/run-tests \
	    $(TORCH_TESTS:%="tools/torch test $B %")

check-deps check-comments: $(LIB_OBJ) $(CLI_OBJ)
check-deps check-comments check-format check-header:
	$(Q)B=$B tools/$@

# Circles, calls upward and returns in numbers; functions must not be inlined.
report-deps:
	+$(Q)$(again) B=$B/calls OPT=-O0 $B/calls/libtutti.a
	$(Q)B=$B/calls tools/check-deps --report

format:
	$(Q)tools/check-format --fix

# What is generated, and the pages as HTML in $B/html.
docs: $B/tutti
	$(Q)B=$B tools/check-docs --fix
	$(Q)tools/site $B

# Each fuzz driver searches for FUZZ_SECONDS; what it finds new lies in
# $B/fuzz/corpus, a crash in $B/fuzz/crash-*. Then it tells which lines of the
# parsers all of them have reached.
fuzz:
	+$(Q)$(again) B=$B/fuzz CC=clang OPT=-O1 CPPFLAGS="-DTT_LIBFUZZER \
	    -fprofile-instr-generate -fcoverage-mapping" \
	    SAN=address,undefined,fuzzer-no-link FUZZ_LINK=-fsanitize=fuzzer \
	    $(FUZZ_SRC:%.c=$B/fuzz/%)
	$(Q)tools/fuzz $B/fuzz $(FUZZ_SECONDS) $(FUZZ_SRC:%.c=%)

bench-pair bench-peers bench-papers bench-scale: bench-%: all $(BENCHES)
	$(Q)B=$B bench/$*/run $(BENCH_ARGS)

# What a program needs beside libtutti.a. Clp is C++ and calls Fortran, of which its
# own file says nothing.
CLP_LIBS = $(foreach L,stdc++ gfortran quadmath,$(if \
    $(wildcard $(shell $(CC) -print-file-name=lib$L.a)),-l$L))
STATIC = $(foreach P,$(filter-out ucx,$(FOUND)),$(shell pkg-config --static --libs $P)) \
         $(if $(filter 1,$(HAVE_CLP)),$(CLP_LIBS)) -pthread -ldl -lm
# Files for pkg-config and CMake, as they are installed below LIBDIR.
TEMPLATES := pkgconfig/tutti.pc pkgconfig/tutti-shared.pc \
             cmake/Tutti/TuttiConfig.cmake cmake/Tutti/TuttiConfigVersion.cmake
version_part = $(word $(1),$(subst ., ,$(VERSION)))

install: all
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/include \
	    $(LIBDIR)/pkgconfig $(LIBDIR)/cmake/Tutti $(MANDIR)/man1 $(BASHDIR) $(ZSHDIR))
	install -m 755 $B/tutti $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include
	install -m 644 $B/libtutti.a $B/libtutti.so.$(VERSION) \
	    $B/libnccl-net-tutti.so $(DESTDIR)$(LIBDIR)
	ln -sf libtutti.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libtutti.so.$(SOVERSION)
	ln -sf libtutti.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libtutti.so
	install -m 644 $B/man/*.1 $(DESTDIR)$(MANDIR)/man1
	install -m 644 share/completion/tutti.bash $(DESTDIR)$(BASHDIR)/tutti
	install -m 644 share/completion/_tutti $(DESTDIR)$(ZSHDIR)
	for file in $(TEMPLATES); do \
	    sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
	        -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	        -e "s|@INCLUDE@|$$(realpath -ms --relative-to=$(LIBDIR)/cmake/Tutti $(PREFIX)/include)|" \
	        -e 's|@SOVERSION@|$(SOVERSION)|' -e 's|@STATIC@|$(strip $(STATIC))|' \
	        -e 's|@MAJOR@|$(call version_part,1)|' -e 's|@MINOR@|$(call version_part,2)|' \
	        packaging/$${file##*/}.in >$(DESTDIR)$(LIBDIR)/$$file || exit; \
	done

uninstall:
	rm -f $(addprefix $(DESTDIR),$(PREFIX)/bin/tutti $(HEADERS:%=$(PREFIX)/%) \
	    $(LIBDIR)/libtutti.a $(LIBDIR)/libtutti.so $(LIBDIR)/libtutti.so.$(SOVERSION) \
	    $(LIBDIR)/libtutti.so.$(VERSION) $(LIBDIR)/libnccl-net-tutti.so $(TEMPLATES:%=$(LIBDIR)/%) \
	    $(MANDIR)/man1/tutti.1 $(MANDIR)/man1/tutti-*.1 \
	    $(BASHDIR)/tutti $(ZSHDIR)/_tutti)
	[ ! -d $(DESTDIR)$(LIBDIR)/cmake/Tutti ] || rmdir $(DESTDIR)$(LIBDIR)/cmake/Tutti

clean:
	$(Q)rm -rf $B
