#pragma once

namespace simt {

/// A place in kernel text. Collectives compare sites to find divergence, so a line holds at most one of them.
struct Site {
  const char* file;
  int line;

  /// The caller's place, when used as a default argument.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace simt
