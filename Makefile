# SPDX-License-Identifier: Apache-2.0
# Every target sets up .venv by itself. It needs Python 3.11 or newer with venv, and git; a GPU is used where there is one.
#
#   make html      build the site                      make check     lint, types, imports, most tests
#   make test      run all tests                       make bench     measure on a Hopper GPU
#   make simulate  run the kernels on the simulator    make clean     remove what was built

READY := .venv/.ready-$(shell git hash-object pyproject.toml)
EXAMPLES := $(wildcard examples/first_kernels/*.py examples/hopper_matmul/matmul_v*.py \
    examples/hopper_matmul/appendix_fp16.py examples/hopper_matmul/ceiling.py)
BUILD := docs/_build
# One date for all builds: the same sources give the same bytes.
export SOURCE_DATE_EPOCH ?= 1735689600

.PHONY: html test check bench simulate clean

# Warnings are errors. A failed build forgets the pages it has read, or the next one would not see
# their warnings. The output is written whole each time, so that nothing of an older build stays.
html: $(READY)
	@rm -rf $(BUILD)/html
	@.venv/bin/python -m sphinx -W -q -j auto -c . -d $(BUILD)/doctrees docs $(BUILD)/html || { rm -rf $(BUILD)/doctrees; exit 1; }
	@echo "The site is in $(BUILD)/html/index.html"

# Files in their order: the site, whose test takes longest, is among the first. There is a worker
# for each core, where the threads of NumPy's BLAS would only wait for each other.
test: export OPENBLAS_NUM_THREADS := 1
test: $(READY)
	.venv/bin/python -m pytest -n logical --dist loadfile --no-loadscope-reorder

check: $(READY)
	scripts/check

bench: $(READY)
	.venv/bin/python examples/hopper_matmul/benchmark.py --device cuda

simulate: $(READY)
	for example in $(EXAMPLES); do .venv/bin/python $$example --device sim || exit 1; done

clean:
	rm -rf $(BUILD) build/tested-site docs/gallery

$(READY):
	@scripts/setup $@
