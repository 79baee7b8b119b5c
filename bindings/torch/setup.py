"""Builds Octet and its operators with CMake and puts both libraries into the package.

Read from the environment, all optional:
  OCTET_LIBRARY   a liboctet.so or liboctet.a that was built already; Octet is built from this tree otherwise
  OCTET_CUDA      AUTO (when nvcc is found), ON or OFF, where Octet is built
  CMAKE_ARGS      more arguments for CMake"""
import glob
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def cmake(source, build, target, *options):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    extra = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    subprocess.check_call(["cmake", *generator, "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *launcher, *options, *extra])
    subprocess.check_call(["cmake", "--build", build, "--target", target, "--parallel", str(os.cpu_count() or 1)])


class BuildLibraries(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "octet"
        build = pathlib.Path(self.get_finalized_command("build").build_temp).resolve()
        library = os.environ.get("OCTET_LIBRARY")
        if not library:
            cmake(ROOT, build / "octet", "octet", "-DOCTET_TESTS=OFF", "-DOCTET_TOOLS=OFF",
                  f"-DOCTET_CUDA={os.environ.get('OCTET_CUDA', 'AUTO')}")
            library = str(build / "octet" / "src" / "liboctet.so")
        torch = importlib.util.find_spec("torch")
        if torch is None:
            raise SystemExit("octet: torch is not installed where the package is built; install torch and add --no-build-isolation")
        cmake(HERE, build / "torch", "octet_torch", f"-DOCTET_LIBRARY={os.path.abspath(library)}",
              f"-DTORCH_DIR={pathlib.Path(torch.origin).parent}", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON")
        shutil.copy2(build / "torch" / "liboctet_torch.so", package)
        if library.endswith(".so"):
            for path in glob.glob(library + ".0"):
                shutil.copy2(os.path.realpath(path), package / "liboctet.so.0")


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3: the libraries know torch's stable interface alone, and nothing of Python's."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithLibraries(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildLibraries, "bdist_wheel": PlatformWheel}, distclass=WithLibraries)
