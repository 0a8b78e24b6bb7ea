"""The runtime image for GPUs has what Triton needs in a pod: a compiler, Python's headers, and
nothing to write outside the folders that a pod mounts."""

import pytest

from buildah import build, has_image, mounted
from confined import run_confined
from images import image_tag

pytestmark = pytest.mark.long

COMPILE = """
import os, pathlib, subprocess, tempfile

from triton.backends.nvidia import driver
from triton.runtime.build import _build

# A pod gets the driver's library from its node; here an empty one stands for it.
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "driver.c").write_text("int cuInit(unsigned flags) { return 100; }")
library = ["gcc", "-shared", "-o", folder / "libcuda.so.1", folder / "driver.c"]
subprocess.check_call(library)
source = pathlib.Path(driver.dirname, "driver.c")
paths = [driver.libdevice_dir, str(folder)]
_build("launcher", str(source), str(folder), paths, driver.include_dirs, driver.libraries, [])

from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.compiling.compilation import compile_variant
from forebay_kernels.gpu.compiling.inventory import shipped

compile_variant(next(iter(shipped(SM_90))), SM_90)
print(os.getuid(), os.access("/", os.W_OK), *sorted(os.listdir(os.environ["TRITON_CACHE_DIR"])))
"""


def test_a_user_that_nobody_knows_compiles_a_kernel_and_its_launcher() -> None:
    tag = f"{image_tag('runtime')}-gpu"
    if not has_image(tag):
        build("runtime", tag, device="gpu")
    places = {"HOME": "/tmp", "TMPDIR": "/tmp", "TRITON_CACHE_DIR": "/mnt/compiled"}
    with mounted(tag) as root:
        printed = run_confined(root, COMPILE, ("/tmp", "/mnt"), places).split()
    assert printed[:2] == ["1234567", "False"]
    assert len(printed) > 2, "it kept nothing in its cache"
