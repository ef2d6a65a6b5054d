# Makefile - the project's commands, thin over the presets of CMakePresets.json. `make help` lists them.
#
# PRESET  cpu, cuda, asan or fuzz. Left out: cuda where an NVIDIA driver answers, nvcc is there and the tree
#         has a CUDA backend; else cpu.
# ARGS    further flags for `make bench`, e.g. ARGS="--model tiny".
# PREFIX  where `make install` puts things (DESTDIR is honoured).
.NOTPARALLEL:
.DEFAULT_GOAL := build

nvcc   := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
driver  = $(or $(wildcard /proc/driver/nvidia/version),$(shell nvidia-smi -L >/dev/null 2>&1 && echo yes))
PRESET := $(or $(PRESET),$(if $(and $(wildcard kernels/cuda/backend_cuda.cu),$(nvcc),$(driver)),cuda,cpu))
PREFIX ?= /usr/local
BUILD  := build/$(PRESET)
JOBS   := $(shell nproc)
ifeq ($(PRESET),cuda)
export CUDACXX ?= $(nvcc)
endif

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

build: $(BUILD)/build.ninja ## configure and build; programs are in build/bin
	@cmake --build $(BUILD) -j $(JOBS)
	@ln -sfn $(PRESET)/bin build/bin

# CMake watches its own files from here on, but not the presets.
$(BUILD)/build.ninja: CMakePresets.json
	@cmake --preset $(PRESET)

setup: ## install the Debian packages that are missing
	@scripts/setup

test: setup build ## build, then every test
	@ctest --preset $(PRESET) -j $(JOBS) $(ARGS)

tiny-weights: build ## train the model that parity tests read: tiny-weights/ of the build
	@$(BUILD)/bin/tiny_weights $(BUILD)/tiny-weights again

bench: setup $(BUILD)/build.ninja ## build bench alone, then the backward suite (flags in ARGS)
	@cmake --build $(BUILD) -j $(JOBS) --target bench
	@ln -sfn $(PRESET)/bin build/bin
	@build/bin/bench --suite backward $(ARGS)

install: build ## programs, corpus, baselines, plots and completion under PREFIX
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

dist: build ## a folder that runs where it is put, and its archive: build/dist
	@scripts/dist $(BUILD) build/dist

format: ## clang-format every C file
	@scripts/format

readme: build ## the generated tables and figures of README.md and docs/ from baselines/
	@scripts/readme --bench $(BUILD)/bin/bench

lint: build ## format, layers, copies, documents, clang-tidy, cppcheck
	@scripts/lint $(BUILD)

mutants: ## break the code in known ways; the tests must go red
	@scripts/mutants $(ARGS)

mutate: ## change random places of the host code; how many do the tests notice? (flags in ARGS)
	@scripts/mutate $(ARGS)

fuzz: ## 30 seconds of libFuzzer for each target
	@scripts/fuzz $(ARGS)

clean: ## remove build/
	@rm -rf build

.PHONY: help build setup test tiny-weights bench install dist format readme lint mutants mutate fuzz clean
