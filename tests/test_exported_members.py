# SPDX-License-Identifier: Apache-2.0
"""The public names are exactly ``tilus.__all__``, and importing them imports nothing heavy."""

import subprocess
import sys
from types import ModuleType

import pytest

import tilus
from tilus import dtypes, errors, ir, launch, script
from tilus.later import Later

autotune = sys.modules["tilus.autotune"]

NO_NAME_OF_OURS = {"annotations"}


def public(module) -> set[str]:
    """Return the names a module shows that are not modules."""
    names = {n for n, v in vars(module).items() if not isinstance(v, ModuleType)}
    return {n for n in names if not n.startswith("_")} - NO_NAME_OF_OURS


def test_all_names_what_is_there():
    assert {*public(tilus), "utils"} == set(tilus.__all__)
    assert len(set(tilus.__all__)) == len(tilus.__all__)


def test_every_type_and_error_is_public():
    types = {t.name for t in dtypes.ALL}
    classes = {n for n in public(errors) if n.endswith("Error")}
    assert types | classes <= set(tilus.__all__)
    assert all(getattr(tilus, name) is getattr(errors, name) for name in classes)


def test_import_is_light():
    """No CUDA library, no driver, nothing that only tools and pages need."""
    heavy = ("cuda", "torch", "matplotlib", "rich", "click", "jsonschema", "scipy")
    code = f"import sys, tilus; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_waits_with_what_only_running_a_kernel_needs():
    later = ("tilus.ops", "tilus.launch.launcher", "tilus.autotune.tuner", "tilus.simulator")
    later += ("tilus.compiler", "tilus.runtime", "tilus.bench", "concurrent.futures", "ctypes.util")
    code = f"import sys, tilus; print([m for m in {later} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_kernels_wait_until_somebody_asks():
    code = "import sys, tilus; before = 'tilus.kernels' in sys.modules; tilus.kernels.matmul; "
    code += "print(before, 'tilus.kernels' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="module 'tilus' has no attribute 'kernel'"):
        tilus.kernel  # noqa: B018


WAITING = [name for name, value in vars(script.Instructions).items() if isinstance(value, Later)]


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_there(name):
    found = getattr(tilus.Script, name)
    assert isinstance(found, ModuleType) or issubclass(found, ir.Instruction)


@pytest.mark.parametrize("package", [autotune, launch])
def test_packages_have_the_names_they_promise(package):
    assert all(getattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'x'"):
        package.x  # noqa: B018
