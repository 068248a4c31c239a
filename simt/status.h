#pragma once

namespace simt {

/// The outcome of a launch: success, or a message that names kernel, file and line, thread and block. No heap: a message is
/// written while the kernel's stacks are being abandoned. Trivially copyable.
class Status {
 public:
  static constexpr int kCapacity = 512;

  Status() { message_[0] = '\0'; }  // the rest stays unset: a success costs one store

  [[nodiscard]] bool ok() const { return message_[0] == '\0'; }
  /// Empty when ok.
  [[nodiscard]] const char* message() const { return message_; }

  /// Appends formatted text; cut at the capacity. Appending to a success makes it a failure.
  [[gnu::format(printf, 2, 3)]] void append(const char* format, ...);

 private:
  char message_[kCapacity];
};

}  // namespace simt
