#pragma once

#include <cstddef>
#include <memory>

namespace rigel {

class Device;
class EventRef;
namespace detail {
struct StreamState;
}

/// A stream that somebody else owns. There is no default stream: it cannot be spelled.
///
/// Thread: one at a time puts work on a stream. Errors: DeviceError, also of work enqueued earlier.
class StreamRef {
 public:
  StreamRef(std::nullptr_t) = delete;
  StreamRef(int) = delete;
  explicit StreamRef(detail::StreamState& state) : state_(&state) {}

  [[nodiscard]] Device& device() const;
  /// Blocks until everything enqueued so far is done. Refused in a capture.
  void synchronize() const;
  /// Whether everything enqueued so far is done. Refused in a capture.
  [[nodiscard]] bool query() const;
  /// What is enqueued from now on runs after the event's latest record. In a capture this is how branches fork and join.
  void wait(EventRef event) const;
  [[nodiscard]] bool is_capturing() const;

  [[nodiscard]] detail::StreamState& state() const { return *state_; }
  friend bool operator==(StreamRef, StreamRef) = default;

 private:
  detail::StreamState* state_;
};

/// A queue of work of a device: in order within itself, concurrent with others. Its end waits for its work.
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  [[nodiscard]] StreamRef ref() const { return StreamRef(*state_); }
  operator StreamRef() const { return ref(); }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Device& device() const { return ref().device(); }
  void synchronize() const { ref().synchronize(); }
  [[nodiscard]] bool query() const { return ref().query(); }
  void wait(EventRef event) const;
  [[nodiscard]] bool is_capturing() const { return ref().is_capturing(); }

 private:
  std::unique_ptr<detail::StreamState> state_;
};

}  // namespace rigel
