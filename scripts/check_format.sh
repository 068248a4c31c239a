#!/usr/bin/env bash
# Checks that every source file is formatted as .clang-format says; lists those that are not. --fix formats them.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-14 || command -v clang-format)
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' | grep -v '/generated/')
if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${files[@]}"
else
  complaints=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1 || true)
  if [ -n "$complaints" ]; then
    grep -E 'error: code should be' <<<"$complaints" | cut -d: -f1 | sort | uniq -c | sed 's/$/ is not formatted/'
    exit 1
  fi
fi
