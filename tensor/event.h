#pragma once

#include "tensor/stream.h"

#include <memory>

namespace rigel {

namespace detail {
struct EventState;
}

/// An event that somebody else owns. One that was never recorded counts as past.
///
/// Thread: any. Errors: DeviceError. Cost: recording and waiting allocate nothing.
class EventRef {
 public:
  explicit EventRef(detail::EventState& state) : state_(&state) {}

  /// Marks the point after everything enqueued on the stream so far; replaces the previous mark.
  void record(StreamRef stream) const;
  /// Whether the mark is past. Refused in a capture.
  [[nodiscard]] bool query() const;
  /// Blocks until the mark is past. Refused in a capture.
  void synchronize() const;

  [[nodiscard]] detail::EventState& state() const { return *state_; }

 private:
  detail::EventState* state_;
};

/// A mark in a stream that the host and other streams can wait for.
class Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  [[nodiscard]] EventRef ref() const { return EventRef(*state_); }
  operator EventRef() const { return ref(); }  // NOLINT(google-explicit-constructor)
  void record(StreamRef stream) const { ref().record(stream); }
  [[nodiscard]] bool query() const { return ref().query(); }
  void synchronize() const { ref().synchronize(); }

 private:
  std::unique_ptr<detail::EventState> state_;
};

/// An event that also notes when it was passed. Costs more than Event, so timing is a type of its own.
class TimedEvent {
 public:
  explicit TimedEvent(Device& device);
  /// Waits for the mark: the device still writes the time.
  ~TimedEvent();
  TimedEvent(TimedEvent&&) noexcept;
  TimedEvent& operator=(TimedEvent&&) noexcept;

  [[nodiscard]] EventRef ref() const { return EventRef(*state_); }
  operator EventRef() const { return ref(); }  // NOLINT(google-explicit-constructor)
  void record(StreamRef stream) const { ref().record(stream); }
  void synchronize() const { ref().synchronize(); }
  /// Microseconds of device time from `start` to this event; both must be past.
  [[nodiscard]] double elapsed_us_since(const TimedEvent& start) const;

 private:
  std::unique_ptr<detail::EventState> state_;
};

}  // namespace rigel
