#pragma once

// Where a test finds its data.

#include <filesystem>
#include <string>
#include <system_error>

namespace rigel::testing {

/// The folder tests/data: ../tests/data beside the program's own folder, as in the bundle of scripts/gpu_check.sh, else that
/// of the source tree the program was built from.
inline std::filesystem::path test_data() {
  std::error_code problem;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (!problem) {
    std::filesystem::path moved = program.parent_path().parent_path() / "tests" / "data";
    if (std::filesystem::is_directory(moved, problem)) {
      return moved;
    }
  }
  return RIGEL_TEST_DATA;
}

}  // namespace rigel::testing
