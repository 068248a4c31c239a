#pragma once

#include <stdexcept>

namespace rigel::text {

/// A tokenizer, a template or a conversation that cannot be worked with. The message names what and where.
class TextError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace rigel::text
