# Packages of Debian 12 that Rigel needs, and how they are installed. Sourced by run.sh and test.sh.

RIGEL_PACKAGES=(
  ca-certificates        # downloads are verified
  cmake ninja-build g++  # the build
  ccache                 # a source is compiled again only where it has changed
  git python3 python3-pip  # the scripts; pip fetches the model
  libboost-dev           # HTTP: Beast and Asio
  libsimdjson-dev        # big JSON files: tokenizer.json, safetensors headers
  nlohmann-json3-dev     # requests and answers
  libfmt-dev libspdlog-dev  # messages and the log
  libcli11-dev libyaml-cpp-dev  # options
  libdnnl-dev            # oneDNN: matrix products on CPUs with AVX-512
)
RIGEL_TEST_PACKAGES=(
  libgtest-dev libgmock-dev libbenchmark-dev  # tests and benchmarks
  clang-format-14        # the format check
)

# To be called before a build folder is configured, by every script alike: another command line compiles everything again.
# Objects are found again from a clone at another path; precompiled headers ask for the first two exceptions.
use_compiler_cache() {
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime
  export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
}

say() { printf '\n== %s\n' "$*" >&2; }

# Installs the packages named, without asking, where any is missing.
install_packages() {
  local missing=() package
  for package in "$@"; do
    if ! dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$'; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return 0
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "install these packages as root first: ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
       } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "the packages could not be installed; the whole log is in $log" >&2
    return 1
  fi
  rm -f "$log"
}
