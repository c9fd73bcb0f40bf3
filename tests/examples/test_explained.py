# SPDX-License-Identifier: Apache-2.0
"""What the gallery says of why a GPU came to an outcome: complete, and true of the machine code."""

import re

import mutants
import outcomes
import pytest

from tilus import compiler, disasm

RECORD = mutants.ROOT / "plots" / "data" / "failures.json"
MUTANTS = mutants.mutants()


def code(path, kernel):
    """Return the machine instructions that a GPU would run, without places and labels."""
    planned = mutants.lower(path, kernel.gpu)[1]
    text = disasm.sass(compiler.build(planned, strict=False).cubin.code)
    lines = [re.sub(r"/\*.*?\*/|\.L_x_\d+", "", line).strip() for line in text.splitlines()]
    return [line for line in lines if line.endswith(";")]


def both(name, folder):
    """Return the machine code of a mutant and of its kernel."""
    mutant = MUTANTS[name]
    broken = code(mutants.write(mutant, folder), mutant.kernel)
    return broken, code(mutant.kernel.path, mutant.kernel)


def test_each_wrong_kernel_with_right_numbers_is_explained():
    runs = outcomes.load(RECORD)["mutants"]
    right = [name for name in runs if runs[name]["plain"]["outcome"] == outcomes.RIGHT]
    assert right and [name for name in right if "right" not in MUTANTS[name].explained] == []


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda m: m.id)
def test_what_is_explained_is_an_outcome(mutant):
    kinds = {outcomes.RIGHT, outcomes.WRONG, outcomes.HANG, outcomes.ERROR}
    assert mutant.explained.keys() <= kinds


def test_ptxas_puts_the_fence_in(tmp_path):
    broken, whole = both("missing-wgmma-fence", tmp_path)
    assert broken == whole and any("WARPGROUP.ARRIVE" in line for line in broken)


def test_ptxas_puts_the_wait_into_the_loop(tmp_path):
    broken, whole = both("accumulator-read-early", tmp_path)
    wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0 ;"
    assert sorted(broken) == sorted(whole) and broken.count(wait) == 1
    last = max(i for i, line in enumerate(broken) if "HGMMA" in line)
    assert broken.index(wait) - last <= 2  # right behind the products, so in their loop
    assert whole.index(wait) - last > 10


def test_nobody_puts_the_proxy_fence_in(tmp_path):
    fences = [
        sum("FENCE.VIEW.ASYNC" in x for x in made) for made in both("no-proxy-fence", tmp_path)
    ]
    assert fences == [0, 1]


def test_between_a_store_and_the_next_write_there_is_a_load_and_no_wait(tmp_path):
    broken, _ = both("staging-rewritten-early", tmp_path)
    found = re.findall(r"LDG|STS|UTMASTG|DEPBAR", " ".join(broken))
    order = [kind for kind, before in zip(found, ["", *found], strict=False) if kind != before]
    assert order == ["LDG", "STS", "UTMASTG", "DEPBAR"]  # one turn of the loop, and its end
