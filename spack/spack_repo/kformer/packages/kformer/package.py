# SPDX-License-Identifier: MIT
import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *


class Kformer(CMakePackage, CudaPackage, ROCmPackage):
    """Transformer building blocks in C++20 on Kokkos, forward and backward, with driver
    programs that run transformer workloads from input decks and write time, memory and
    accuracy to HDF5."""

    homepage = "https://github.com/kformer/kformer"
    git = "https://github.com/kformer/kformer.git"

    test_requires_compiler = True

    license("MIT")

    # A release is here by its tag and the commit of that tag; a test compares them with CHANGELOG.md and the repository.
    version("main", branch="main")

    generator("ninja")

    variant("openmp", default=True, description="Run on host threads through OpenMP")
    variant("drivers", default=True, description="Build the io library and the driver programs")
    variant("tests", default=False, description="Build the tests, to run them by hand")
    variant("shared", default=False, description="Build shared libraries")
    variant("pic", default=True, when="~shared", description="Position-independent static libraries")
    # SentencePiece brings gperftools along, which few want for one format of tokenizers.
    variant(
        "sentencepiece",
        default=False,
        when="+drivers",
        description="Read tokenizers of SentencePiece",
    )
    variant(
        "icu",
        default=True,
        when="+drivers",
        description="Normalise Unicode text for tokenizers",
    )
    variant("blas", default=True, description="Host matrix products through BLAS")
    variant("mpi", default=False, description="Ranks of MPI: Kformer::parallel")
    variant("nccl", default=False, description="Messages between GPUs through NCCL")
    variant("kokkos_kernels", default=False, description="Matrix products through Kokkos Kernels")
    # Kokkos builds for exactly one architecture, so its variant is taken over in its form.
    variant(
        "cuda_arch",
        default="none",
        values=("none",) + CudaPackage.cuda_arch_values,
        multi=False,
        sticky=True,
        when="+cuda",
        description="CUDA architecture, passed on to Kokkos",
    )

    # CMake's FindHDF5 and FindMPI ask the C compiler, so the project has both languages.
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")

    depends_on("kokkos@4.6:5")
    depends_on("kokkos+openmp", when="+openmp")
    depends_on("kokkos+serial", when="~openmp")
    depends_on("kokkos~cuda", when="~cuda")
    depends_on("kokkos~rocm", when="~rocm")
    for target in ROCmPackage.amdgpu_targets:
        depends_on(f"kokkos+rocm amdgpu_target={target}", when=f"+rocm amdgpu_target={target}")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"nccl cuda_arch={arch}", when=f"+nccl cuda_arch={arch}")
    # Names what does not work: not every repository has a Kokkos with cxxstd=23.
    conflicts(
        "^kokkos@:4 cxxstd=17",
        msg="Kformer is C++20: its Kokkos 4 needs cxxstd=20 or later",
    )
    requires("^kokkos+cuda_lambda", when="+cuda ^kokkos@:4")
    requires(
        "^kokkos+wrapper",
        when="+cuda",
        msg="Kformer compiles its CUDA kernels with Kokkos' nvcc_wrapper",
    )

    conflicts(
        "^kokkos+cmake_lang",
        when="+rocm",
        msg="Kformer compiles for HIP with hipcc: take kokkos~cmake_lang",
    )

    with when("+kokkos_kernels"):
        depends_on("kokkos-kernels@4.6:5")
        depends_on("kokkos-kernels+openmp", when="+openmp")
        depends_on("kokkos-kernels+blas", when="+blas")
        depends_on("kokkos-kernels+cuda+cublas", when="+cuda")

    depends_on("blas", when="+blas")
    # Said as a dependency: a conflict would drive the concretizer away from OpenBLAS, to a BLAS without threads.
    depends_on("openblas threads=openmp", when="+blas+openmp ^[virtuals=blas] openblas")
    depends_on("mpi@3:", when="+mpi")
    depends_on("nccl@2.22:", when="+nccl")

    with when("+drivers"):
        # Files are written by one process; a parallel HDF5 would make MPI a need of every consumer.
        depends_on("hdf5@1.10:+hl~mpi")
        depends_on("tomlplusplus@3.3:", type="build")
        depends_on("nlohmann-json@3.11:", type="build")
        depends_on("fmt@9:")
        depends_on("cli11@2.1:", type="build")
        depends_on("pcre2@10.40:")
        depends_on("sentencepiece", when="+sentencepiece")
        depends_on("icu4c", when="+icu")

    depends_on("boost@1.74:+test", when="+tests")
    depends_on("boost@1.74:+test", type="test")

    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="kformer+cuda needs the GPU's architecture, such as cuda_arch=80 (A100) or "
        "cuda_arch=90 (H100, H200)",
    )
    conflicts(
        "^openblas threads=pthreads",
        when="+blas",
        msg="Kformer calls BLAS from its own threads: take openblas threads=openmp",
    )
    conflicts(
        "amdgpu_target=none",
        when="+rocm",
        msg="kformer+rocm needs the GPU's architecture, such as amdgpu_target=gfx90a (MI250) or "
        "amdgpu_target=gfx942 (MI300)",
    )
    # The condition of a variant, when="+cuda+mpi", would refuse the same without a sentence.
    conflicts("~cuda", when="+nccl", msg="NCCL is for NVIDIA's GPUs: kformer+nccl needs +cuda")
    conflicts("~mpi", when="+nccl", msg="NCCL's ranks are those of MPI: kformer+nccl needs +mpi")
    conflicts("+cuda", when="+rocm", msg="Kokkos runs on one kind of GPU: take +cuda or +rocm")
    conflicts("%gcc@:11", msg="Kformer is C++20 and needs GCC 12 or newer")

    sanity_check_is_file = [
        join_path("include", "kformer", "core", "scalar.hpp"),
        join_path("include", "kformer", "ops", "attention.hpp"),
        join_path("include", "kformer", "model", "decoder_layer.hpp"),
    ]

    consumer_src_dir = join_path("tests", "install", "consumer")

    def cmake_args(self):
        args = [
            self.define("Kformer_FETCH_DEPS", False),
            self.define(
                "Kformer_ENABLE_TESTS", self.run_tests or self.spec.satisfies("+tests")
            ),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define(
                "CMAKE_POSITION_INDEPENDENT_CODE", self.spec.satisfies("+shared") or self.spec.satisfies("+pic")
            ),
            self.define_from_variant("Kformer_ENABLE_DRIVERS", "drivers"),
            self.define_from_variant("Kformer_ENABLE_BLAS", "blas"),
            self.define_from_variant("Kformer_ENABLE_SENTENCEPIECE", "sentencepiece"),
            self.define_from_variant("Kformer_ENABLE_ICU", "icu"),
            self.define(
                "Kformer_ENABLE_KOKKOS_KERNELS",
                "ON" if self.spec.satisfies("+kokkos_kernels") else "OFF",
            ),
            self.define("Kformer_ENABLE_MPI", "ON" if self.spec.satisfies("+mpi") else "OFF"),
            self.define("Kformer_ENABLE_NCCL", self.spec.satisfies("+nccl")),
            self.define("Kokkos_ROOT", self.spec["kokkos"].prefix),
        ]
        # What Spack takes from its cache or a mirror is no repository.
        if "commit" in self.spec.variants:
            args.append(self.define("Kformer_REVISION", self.spec.variants["commit"].value))
        if self.spec.satisfies("+blas"):
            args.append(self.define("BLAS_LIBRARIES", self.spec["blas"].libs.joined(";")))
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self["kokkos"].kokkos_cxx))
        elif self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args

    def compilers_of_consumers(self):
        """CMake's arguments; outside of a build Spack sets neither CC nor CXX."""
        if self.spec.satisfies("+cuda"):
            os.environ["NVCC_WRAPPER_DEFAULT_COMPILER"] = self["cxx"].cxx
            os.environ["CUDA_ROOT"] = os.environ["CUDAToolkit_ROOT"] = self.spec["cuda"].prefix
            cxx = self["kokkos"].kokkos_cxx
        elif self.spec.satisfies("+rocm"):
            cxx = self.spec["hip"].hipcc
        else:
            cxx = self["cxx"].cxx
        return [self.define("CMAKE_CXX_COMPILER", cxx), self.define("CMAKE_C_COMPILER", self["c"].cc)]

    @run_after("install")
    def keep_consumer_project(self):
        cache_extra_test_sources(self, [self.consumer_src_dir])

    def test_consumer(self):
        """build and run a project that uses the installed package"""
        cmake = self.spec["cmake"].command
        ctest = Executable(join_path(self.spec["cmake"].prefix.bin, "ctest"))
        source = join_path(self.test_suite.current_test_cache_dir, self.consumer_src_dir)

        cmake(
            "-S", source, "-B", "consumer",
            self.define("CMAKE_PREFIX_PATH", [self.prefix, *get_cmake_prefix_path(self)]),
            *self.compilers_of_consumers(),
        )  # fmt: skip
        cmake("--build", "consumer")
        ctest("--test-dir", "consumer", "--output-on-failure", "--no-tests=error")

    def test_version(self):
        """the drivers start, and say what they were built with"""
        if self.spec.satisfies("~drivers"):
            raise SkipTest("Package must be installed with +drivers")
        for name in ("kformer-layer", "kformer-attention"):
            driver = Executable(join_path(self.prefix.bin, name))
            check_outputs("Kokkos", driver("--version", output=str.split, error=str.split))

    def test_deck(self):
        """a small layer forward and backward, compared with the reference in double"""
        if self.spec.satisfies("~drivers"):
            raise SkipTest("Package must be installed with +drivers")
        driver = Executable(join_path(self.prefix.bin, "kformer-layer"))
        deck = join_path(self.prefix.share, "kformer", "inputs", "smoke", "layer.toml")
        check_outputs("results: ", driver(deck, "-o", "layer.h5", output=str.split, error=str.split))
