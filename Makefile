# Makefile - short commands for the presets of CMakePresets.json and for scripts/. `make help` lists them.
#
# PRESET  cpu, cuda, asan or fuzz. Default: cuda if an NVIDIA driver answers, nvcc is found and the tree has a CUDA
#         backend; else cpu.
# ARGS    further arguments for test, bench, mutants, mutate and fuzz, e.g. make bench ARGS="--model tiny".
# PREFIX  the folder into which `make install` installs (DESTDIR is honoured).
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

help: ## prints this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

build: $(BUILD)/build.ninja ## configure and build; the programs are in build/bin
	@cmake --build $(BUILD) -j $(JOBS)
	@ln -sfn $(PRESET)/bin build/bin

# After the first configuration CMake notices changes of its own files, but not of the presets.
$(BUILD)/build.ninja: CMakePresets.json
	@cmake --preset $(PRESET)

setup: ## install the Debian packages that are missing
	@scripts/setup

test: setup build ## install missing packages, build, run every test (flags for ctest in ARGS)
	@ctest --preset $(PRESET) -j $(JOBS) $(ARGS)

tiny-weights: build ## train the model that parity_test reads, into tiny-weights/ of the build folder
	@$(BUILD)/bin/tiny_weights $(BUILD)/tiny-weights again

bench: setup $(BUILD)/build.ninja ## build bench alone, and run suite backward (flags in ARGS)
	@cmake --build $(BUILD) -j $(JOBS) --target bench
	@ln -sfn $(PRESET)/bin build/bin
	@build/bin/bench --suite backward $(ARGS)

install: build ## install programs, corpus, baselines, plots and completion under PREFIX
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

dist: build ## make a folder that runs from any path, and its archive, in build/dist
	@scripts/dist $(BUILD) build/dist

format: ## clang-format every C file
	@scripts/format

readme: build ## write the generated tables and figures of README.md and docs/ from baselines/
	@scripts/readme --bench $(BUILD)/bin/bench

lint: build ## check format, layers, words, named files, copies, documents; clang-tidy; cppcheck
	@scripts/lint $(BUILD)

mutants: ## break the code in recorded ways; for each a test must fail (names in ARGS)
	@scripts/mutants $(ARGS)

mutate: ## make random changes to the host code and count those that a test notices (flags in ARGS)
	@scripts/mutate $(ARGS)

fuzz: ## run each libFuzzer target for 30 seconds (other SECONDS in ARGS)
	@scripts/fuzz $(ARGS)

clean: ## remove build/
	@rm -rf build

.PHONY: help build setup test tiny-weights bench install dist format readme lint mutants mutate fuzz clean
