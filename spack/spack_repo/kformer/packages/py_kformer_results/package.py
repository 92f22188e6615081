# SPDX-License-Identifier: MIT
from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyKformerResults(PythonPackage):
    """Opens the result files of Kformer's drivers with xarray, compares them and draws them."""

    homepage = "https://github.com/kformer/kformer"
    git = "https://github.com/kformer/kformer.git"

    license("MIT")

    version("main", branch="main")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@61:", type="build")
    depends_on("py-h5netcdf@1.1:", type=("build", "run"))
    depends_on("py-h5py@3.7:", type=("build", "run"))
    depends_on("py-matplotlib@3.6:", type=("build", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-pandas@1.5:", type=("build", "run"))
    depends_on("py-xarray@2023.1:", type=("build", "run"))

    import_modules = ["kformer_results"]

    build_directory = "analysis"
