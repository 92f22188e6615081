# SPDX-License-Identifier: MIT
"""The Spack recipes, read with stand-ins for Spack's directives: what they say fits itself and the sources. `scripts/check_spack` asks
Spack itself.

ctest runs this with the sources in KFORMER_SOURCE.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

from load_script import load_script

SOURCE = Path(os.environ["KFORMER_SOURCE"])
PACKAGES = SOURCE / "spack/spack_repo/kformer/packages"
DIRECTIVES = ("version variant depends_on conflicts requires license generator").split()


class Recorder:
    """A package's directives, in order; `with when(...)` adds its condition."""

    def __init__(self):
        self.calls, self.conditions = [], []

    def directive(self, name):
        def record(*arguments, when="", **options):
            self.calls.append((name, arguments, " ".join([*self.conditions, when]).strip(), options))
        return record

    def when(self, condition):
        outer = self

        class Context:
            def __enter__(self):
                outer.conditions.append(condition)

            def __exit__(self, *_):
                outer.conditions.pop()
        return Context()


def read_recipe(name):
    """The directives of a recipe, and its class."""
    recorder = Recorder()
    spack = types.ModuleType("spack.package")
    for directive in DIRECTIVES:
        setattr(spack, directive, recorder.directive(directive))
    spack.when, spack.join_path = recorder.when, lambda *parts: "/".join(parts)
    spack.run_after = lambda phase: lambda method: method
    modules = {"spack": types.ModuleType("spack"), "spack.package": spack}
    for module, classes in {"cmake": {"CMakePackage": {}}, "python": {"PythonPackage": {}},
                            "cuda": {"CudaPackage": {"cuda_arch_values": ("80", "90")}},
                            "rocm": {"ROCmPackage": {"amdgpu_targets": ("gfx90a", "gfx942")}}}.items():
        stand_in = types.ModuleType(module)
        for label, members in classes.items():
            setattr(stand_in, label, type(label, (), members))
        stand_in.generator = spack.generator
        modules[f"spack_repo.builtin.build_systems.{module}"] = stand_in
    for parent in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[parent] = types.ModuleType(parent)
    before = {module: sys.modules.get(module) for module in modules}
    sys.modules.update(modules)
    try:
        names = {}
        exec(compile((PACKAGES / name / "package.py").read_text(), name, "exec"), names)
    finally:
        for module, old in before.items():
            sys.modules.pop(module) if old is None else sys.modules.update({module: old})
    package, = [value for value in names.values() if isinstance(value, type) and value.__module__ not in modules
                and value.__bases__ != (object,)]
    return recorder.calls, package


class Settings:
    """Stands for a package in `cmake_args`."""

    run_tests = False

    def __init__(self, on):
        self.on = on
        self.spec = self
        self.variants = {}

    def satisfies(self, variant):
        return variant in self.on

    def define(self, name, value):
        return f"-D{name}={value}"

    def define_from_variant(self, name, variant):
        return self.define(name, "+" + variant in self.on)

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix="/" + name, kokkos_cxx="nvcc_wrapper", hipcc="hipcc", cxx="c++", cc="cc",
                                     libs=types.SimpleNamespace(joined=lambda _: "libblas.so"))


def changelog_versions():
    """The versions of CHANGELOG.md, newest first, and whether they were released."""
    headings = re.findall(r"^## (\d+\.\d+\.\d+)( \(unreleased\))?$", (SOURCE / "CHANGELOG.md").read_text(), re.M)
    return [(version, not unreleased) for version, unreleased in headings]


def commit_of(tag):
    """The commit of a tag, or None where the sources are no repository or lack the tag."""
    git = subprocess.run(["git", "-C", str(SOURCE), "rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}"],
                         text=True, capture_output=True, check=False)
    return git.stdout.strip() or None


class Kformer(unittest.TestCase):
    def setUp(self):
        self.calls, self.package = read_recipe("kformer")

    def said(self, directive):
        return [call for call in self.calls if call[0] == directive]

    def cmake_args(self, *on):
        return self.package.cmake_args(Settings(on))

    def test_every_condition_names_a_variant_that_there_is(self):
        variants = {arguments[0] for _, arguments, _, _ in self.said("variant")} | {"cuda", "rocm"}
        for name, arguments, condition, _ in self.calls:
            for word in condition.split():
                if word.startswith("^"):
                    break  # the variants of a dependency
                for variant in re.findall(r"[+~]([a-z_]+)", word):
                    self.assertIn(variant, variants, (name, arguments, condition))

    def test_a_gpu_without_its_architecture_is_refused_with_a_sentence(self):
        for gpu, none in (("+cuda", "cuda_arch=none"), ("+rocm", "amdgpu_target=none")):
            sentence, = [options["msg"] for _, arguments, condition, options in self.said("conflicts")
                         if arguments == (none,) and condition == gpu]
            self.assertIn("needs the GPU's architecture, such as", sentence)

    def test_hip_as_a_language_of_cmake_is_refused_with_a_sentence(self):
        sentence, = [options["msg"] for _, arguments, condition, options in self.said("conflicts")
                     if arguments == ("^kokkos+cmake_lang",) and condition == "+rocm"]
        self.assertIn("kokkos~cmake_lang", sentence)

    def test_nccl_alone_is_refused_with_a_sentence(self):
        check = (SOURCE / "scripts/check_spack").read_text()
        for needed in ("cuda", "mpi"):
            sentence, = [options["msg"] for _, arguments, condition, options in self.said("conflicts")
                         if arguments == (f"~{needed}",) and condition == "+nccl"]
            self.assertIn(f"kformer+nccl needs +{needed}", sentence)
            self.assertIn(f'"kformer+nccl needs +{needed}"', check)

    def test_the_architecture_is_that_of_kokkos_and_nccl(self):
        needs = [(arguments[0], condition) for _, arguments, condition, _ in self.said("depends_on")]
        self.assertIn(("kokkos+cuda cuda_arch=90", "+cuda cuda_arch=90"), needs)
        self.assertIn(("kokkos+rocm amdgpu_target=gfx942", "+rocm amdgpu_target=gfx942"), needs)
        self.assertIn(("nccl cuda_arch=90", "+nccl cuda_arch=90"), needs)  # without one, NCCL's recipe refuses
        for gpu in ("cuda", "rocm"):
            self.assertIn((f"kokkos~{gpu}", f"~{gpu}"), needs)

    def test_openblas_has_the_threads_of_openmp(self):
        self.assertIn(("openblas threads=openmp", "+blas+openmp ^[virtuals=blas] openblas"),
                      [(arguments[0], condition) for _, arguments, condition, _ in self.said("depends_on")])

    def test_only_values_that_every_kokkos_has(self):
        # Spack refuses to solve anything at all for a value that the recipe of a dependency lacks, as that of Spack 1.1 lacks 23.
        conflict, = [arguments[0] for _, arguments, _, _ in self.said("conflicts") if "cxxstd" in arguments[0]]
        self.assertEqual(conflict, "^kokkos@:4 cxxstd=17")
        for _, arguments, condition, _ in self.calls:
            self.assertNotIn("cxxstd=23", " ".join([*map(str, arguments), condition]))

    def test_cmake_knows_every_option(self):
        cmake = (SOURCE / "CMakeLists.txt").read_text()
        for argument in self.cmake_args("+blas", "+cuda", "+mpi", "+nccl"):
            name = re.match(r"-D(Kformer_\w+)=", argument)
            if name:
                self.assertRegex(cmake, rf"(option|set)\({name[1]}\b")

    def test_variants_reach_cmake(self):
        self.assertIn("-DKformer_ENABLE_MPI=ON", self.cmake_args("+mpi"))
        self.assertIn("-DKformer_ENABLE_MPI=OFF", self.cmake_args())
        self.assertIn("-DKformer_ENABLE_NCCL=True", self.cmake_args("+nccl"))
        self.assertIn("-DKformer_ENABLE_NCCL=False", self.cmake_args())
        self.assertIn("-DBUILD_SHARED_LIBS=True", self.cmake_args("+shared"))
        self.assertIn("-DCMAKE_POSITION_INDEPENDENT_CODE=True", self.cmake_args("+shared"))
        self.assertIn("-DCMAKE_CXX_COMPILER=nvcc_wrapper", self.cmake_args("+cuda"))
        self.assertIn("-DCMAKE_CXX_COMPILER=hipcc", self.cmake_args("+rocm"))

    def test_results_name_the_commit(self):
        settings = Settings(())
        settings.variants["commit"] = types.SimpleNamespace(value="1a2b3c4d")
        self.assertIn("-DKformer_REVISION=1a2b3c4d", self.package.cmake_args(settings))
        self.assertEqual([argument for argument in self.cmake_args() if "REVISION" in argument], [])

    def test_installation_tests_build_them(self):
        settings = Settings(())
        settings.run_tests = True
        self.assertIn("-DKformer_ENABLE_TESTS=True", self.package.cmake_args(settings))
        self.assertIn("-DKformer_ENABLE_TESTS=False", self.cmake_args())

    def test_the_compilers_are_those_of_the_languages_of_the_project(self):
        languages = re.search(r"^project\([^)]*LANGUAGES ([A-Z ]+)\)", (SOURCE / "CMakeLists.txt").read_text(), re.M)[1]
        needs = {arguments[0] for _, arguments, condition, options in self.said("depends_on")
                 if not condition and options.get("type") == "build"}
        self.assertEqual(needs & {"c", "cxx", "fortran"}, {language.lower() for language in languages.split()})

    def test_consumers_have_both_compilers(self):
        self.assertEqual(self.package.compilers_of_consumers(Settings(())),
                         ["-DCMAKE_CXX_COMPILER=c++", "-DCMAKE_C_COMPILER=cc"])

    def test_the_consumer_is_where_the_recipe_says(self):
        self.assertTrue((SOURCE / self.package.consumer_src_dir / "CMakeLists.txt").is_file())

    def test_no_test_relies_on_the_environment_of_a_build(self):
        text = (PACKAGES / "kformer/package.py").read_text()
        self.assertNotRegex(text, r'environ\["C(C|XX)"\]')

    def test_what_must_be_installed_is_in_the_sources(self):
        for path in self.package.sanity_check_is_file:
            self.assertTrue((SOURCE / path).is_file(), path)


class Analysis(unittest.TestCase):
    def test_the_needs_are_those_of_the_python_package(self):
        calls, package = read_recipe("py_kformer_results")
        needs = {}
        for _, (spec, *_), _, options in [call for call in calls if call[0] == "depends_on"]:
            if "run" in options["type"] and spec.startswith("py-"):
                name, version = spec[3:].rstrip(":").split("@")
                needs[name] = version
        stated = re.search(r"^dependencies = \[(.*)\]", (SOURCE / "analysis/pyproject.toml").read_text(), re.M)[1]
        self.assertEqual(needs, dict(need.split(">=") for need in re.findall(r'"([^"]+)"', stated)))
        self.assertTrue((SOURCE / package.build_directory / "pyproject.toml").is_file())


class Releases(unittest.TestCase):
    def test_one_version_everywhere(self):
        version, _ = changelog_versions()[0]
        header = (SOURCE / "include/kformer/version.hpp").read_text()
        self.assertEqual(".".join(re.findall(r"^#define KFORMER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.M)), version)
        for file, pattern in {"CITATION.cff": r"^version: (.+)$", "analysis/pyproject.toml": r'^version = "(.+)"$',
                              "docs/clusters.md": r"^-- kformer/(.+)\.lua$"}.items():
            self.assertEqual(re.findall(pattern, (SOURCE / file).read_text(), re.M), [version], file)

    def test_recipes_have_every_release_by_tag_and_commit(self):
        released = {version for version, is_released in changelog_versions() if is_released}
        for recipe in ("kformer", "py_kformer_results"):
            calls, _ = read_recipe(recipe)
            said = {arguments[0]: options for directive, arguments, _, options in calls if directive == "version"}
            self.assertEqual(said.pop("main"), {"branch": "main"})
            self.assertEqual(set(said), released, recipe)
            for version, options in said.items():
                self.assertEqual(options["tag"], f"v{version}")
                self.assertRegex(options["commit"], r"^[0-9a-f]{40}$")
                self.assertIn(commit_of(options["tag"]), (options["commit"], None))


class Externals(unittest.TestCase):
    def setUp(self):
        self.debian = load_script("spack/debian_externals")

    def test_every_dependency_has_a_package(self):
        virtual = {"c": "gcc", "cxx": "gcc", "blas": "openblas", "mpi": "openmpi"}
        for recipe in ("kformer", "py_kformer_results"):
            calls, _ = read_recipe(recipe)
            needs = {re.match(r"[\w-]+", arguments[0])[0] for directive, arguments, _, _ in calls if directive == "depends_on"}
            # NCCL comes with +cuda, of which Debian has no Kokkos.
            needs = {virtual.get(name, name) for name in needs} - {"kokkos", "kokkos-kernels", "nccl"}
            self.assertLessEqual(needs, set(self.debian.EXTERNALS))

    def test_versions_are_those_of_the_authors(self):
        for debian, upstream in {"1:2.2.4+ds-1": "2.2.4", "10.46-1~deb13u3": "10.46", "76.1-4": "76.1"}.items():
            self.assertEqual(self.debian.upstream_version(debian), upstream)

    def test_an_entry_names_version_variants_and_prefix(self):
        lines = self.debian.entry("hdf5", "1.14.5", "+hl~mpi", "/usr")
        self.assertEqual(lines, ["  hdf5:", "    buildable: false", "    externals:", '    - spec: "hdf5@1.14.5 +hl~mpi"',
                                 "      prefix: /usr"])
        self.assertIn("      - spec: python", self.debian.entry("py-numpy", "2.2.4", "", "/usr"))


class Environments(unittest.TestCase):
    def test_no_section_is_empty(self):
        # Spack refuses a section that has only comments.
        for file in SOURCE.glob("spack/**/spack.yaml"):
            lines = [line for line in file.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
            for line, following in itertools.pairwise([*lines, ""]):
                if line.endswith(":"):
                    self.assertRegex(following, r"^" + re.match(r" *", line)[0] + r"( +|- )\S", f"{file}: {line}")


@unittest.skipIf(shutil.which("spack", path="/usr/bin:/bin"), "this Spack would run")
class CheckSpack(unittest.TestCase):
    def check_spack(self, *words):
        """Its exit code, with no Spack on the PATH."""
        environment = {name: value for name, value in os.environ.items() if name != "SPACK_ROOT"} | {"PATH": "/usr/bin:/bin"}
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([SOURCE / "scripts/check_spack", *[word.format(folder=folder) for word in words]], env=environment,
                                  capture_output=True, check=False).returncode

    def test_specs_may_come_before_and_after_options(self):
        for words in (["--install", "kformer", "--keep", "{folder}"], ["--keep", "{folder}", "--install", "kformer", "kformer~drivers"],
                      ["--install", "--externals", "debian", "kformer"], ["--full"]):
            self.assertEqual(self.check_spack(*words), 77, words)

    def test_what_has_no_meaning_is_refused(self):
        for words in (["kformer"], ["--instal"], ["--install", "--externals", "fedora"]):
            self.assertEqual(self.check_spack(*words), 2, words)


if __name__ == "__main__":
    unittest.main()
