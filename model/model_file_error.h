#pragma once

#include <stdexcept>

namespace rigel {

/// Files of a model that cannot be used: missing, damaged, or asking for something unsupported. `what()` is for the user: it
/// names file or field, the value found, and what would be right.
class ModelFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace rigel
