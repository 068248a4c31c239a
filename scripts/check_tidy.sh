#!/usr/bin/env bash
# Runs clang-tidy on the sources that changed since a commit, with the compile commands of build/cpu-release.
# usage: scripts/check_tidy.sh [COMMIT]      COMMIT: default HEAD~1. Needs the package clang-tidy-19 and a configured build.
set -euo pipefail
cd "$(dirname "$0")/.."
tidy=$(command -v clang-tidy-19 || command -v clang-tidy)
mapfile -t files < <(git diff --name-only --diff-filter=d "${1:-HEAD~1}" -- '*.cc' | grep -v '^tests/' || true)
if [ ${#files[@]} -eq 0 ]; then
  echo "no source has changed" >&2
  exit 0
fi
exec "$tidy" -p build/cpu-release --quiet "${files[@]}"
