# SPDX-License-Identifier: BSD-3-Clause
# Tutti. `make` builds, `make demo` runs the main job, `make check` passes all
# tests; both install what is missing first (tools/setup). B=dir builds
# elsewhere, V=1 shows commands, SAN=address|undefined|thread (or
# address,undefined) builds with sanitizers, WERROR=1 as CI does.

B ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
VERSION := 0.1.0
SOVERSION := 0

CC ?= cc
OPT ?= -O2
CFLAGS ?= -g $(OPT)
WARN := -Wall -Wextra -Wundef -Wshadow -Wstrict-prototypes \
        -Wmissing-prototypes -Wvla -Wpointer-arith $(if $(WERROR),-Werror)
# -ffp-contract=off: the bits of a sum must not depend on the compiler.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -fPIC -fvisibility=hidden \
             -ffp-contract=off -pthread $(WARN) $(CFLAGS) $(SANFLAGS)
ifdef SAN
SANFLAGS := -fsanitize=$(SAN) -fno-omit-frame-pointer
endif
LDLIBS := -pthread -ldl -lm
CMOCKA = $(shell pkg-config --libs cmocka 2>/dev/null || echo -lcmocka)

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

LIB_SRC := $(sort $(wildcard src/*/*.c))
CLI_SRC := $(sort $(wildcard cli/*.c))
EXAMPLE_SRC := $(sort $(wildcard examples/*.c))
TEST_SRC := $(sort $(wildcard tests/unit/*.c tests/prop/*.c tests/fault/*.c \
                              tests/proc/*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.c))
SUPPORT_SRC := $(sort $(wildcard tests/support/*.c))

LIB_OBJ := $(LIB_SRC:%.c=$B/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$B/%.o)
SUPPORT_OBJ := $(SUPPORT_SRC:%.c=$B/%.o)
EXAMPLES := $(EXAMPLE_SRC:%.c=$B/%)
TESTS := $(TEST_SRC:%.c=$B/%)
FUZZ := $(FUZZ_SRC:%.c=$B/%)

.PHONY: all clean install uninstall demo check setup tests fuzz check-deps \
        check-format check-header format bench-peers

all: $B/libtutti.a $B/libtutti.so $B/tutti $(EXAMPLES)

$B/libtutti.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$B/libtutti.so.$(VERSION): $(LIB_OBJ) src/core/tutti.map
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libtutti.so.$(SOVERSION) \
	    -Wl,--version-script=src/core/tutti.map -o $@ $(LIB_OBJ) $(LDLIBS)

$B/libtutti.so: $B/libtutti.so.$(VERSION)
	$(Q)ln -sf libtutti.so.$(VERSION) $B/libtutti.so.$(SOVERSION)
	$(Q)ln -sf libtutti.so.$(SOVERSION) $@

$B/tutti: $(CLI_OBJ) $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LDLIBS)

$(EXAMPLES): $B/examples/%: $B/examples/%.o $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LDLIBS)

$(TESTS) $(FUZZ): $B/tests/%: $B/tests/%.o $(SUPPORT_OBJ) $B/libtutti.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(CMOCKA) $(LDLIBS)

# The kernels are the only loops worth -O3.
$B/src/engine/kernels.o: OPT = -O3

$B/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(filter tests/%,$<),-Itests) -MMD -MP -c -o $@ $<

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(SUPPORT_OBJ:.o=.d) \
         $(EXAMPLES:=.d) $(TESTS:=.d) $(FUZZ:=.d)

tests: $(TESTS) $(FUZZ)
fuzz: $(FUZZ)

setup:
	$(Q)tools/setup

clean:
	$(Q)rm -rf $B
