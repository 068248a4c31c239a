#!/usr/bin/env bash
# Checks that every source file is formatted as .clang-format says; lists those that are not. --fix formats them.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-14 || command -v clang-format)
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' | grep -v '/generated/')
if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${files[@]}"
else
  "$formatter" --dry-run --Werror "${files[@]}" 2>&1 | grep -E 'error: code should be' | cut -d: -f1 | sort | uniq -c | sed 's/$/ is not formatted/'
  test "${PIPESTATUS[0]}" -eq 0
fi
