#pragma once

#include "engine/contract/node_inputs.h"
#include "engine/contract/request_info.h"
#include "engine/contract/signals.h"
#include "engine/lifetime.h"
#include "worker/request.h"
#include "worker/service.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace rigel {

using Clock = std::chrono::steady_clock;

/// A request inside the worker, from acceptance to its last output. Thread: worker.
struct alignas(64) RequestState {
  enum class Phase : std::uint8_t {
    kWaiting,    // no row yet
    kRunning,    // in a walk
    kPreempted,  // has a row, lost its pages; starts over when there is room
    kOffloaded,  // has a row, its pages are on the host; goes on when there is room
  };

  // What every decode step touches stands together, in one cache line and the first of `info`.
  RequestId id{};
  Clock::time_point last_token;
  Phase phase = Phase::kWaiting;
  std::uint8_t num_newest = 0;
  bool wants_logprobs = false;           // info.sampling says how many
  std::array<std::int32_t, 8> newest{};  // tokens on their way to `tokens`
  std::int32_t num_cached_tokens = 0;    // of the prompt, when the request was admitted
  std::int32_t num_computed = 0;         // tokens of its prefill that were launched
  RequestInfo info;

  std::vector<std::int32_t> tokens;  // prompt, then what was generated, without the newest
  GenerationRequest spec;
  bool cancel_requested = false;
  SignalMap prefill_signals;              // what whole_row is prepared from
  std::unique_ptr<NodeInputs> whole_row;  // all tokens of this prefill, prepared once
  std::uint64_t admission_number = 0;     // order of admission; the oldest is never preempted
  std::int32_t num_preemptions = 0;
  PromptScores scores;

  Clock::time_point arrived;
  Clock::time_point admitted;
  Clock::time_point first_token;

  [[nodiscard]] RequestHandle handle() const { return info.handle; }
  [[nodiscard]] std::int32_t num_tokens() const {
    return static_cast<std::int32_t>(tokens.size()) + num_newest;
  }
  /// Keeps a token that was generated. The ends of a thousand lists lie on a thousand pages, so only every eighth token
  /// goes there.
  void append_token(std::int32_t token) {
    newest[num_newest++] = token;
    if (num_newest == newest.size()) {
      settle_tokens();
    } else if (num_newest + 1U == newest.size()) {
      __builtin_prefetch(tokens.data() + tokens.size(), /*rw=*/1);
    }
  }
  /// Puts the newest tokens where the others are.
  void settle_tokens() {
    tokens.insert(tokens.end(), newest.begin(), newest.begin() + num_newest);
    num_newest = 0;
  }
  /// Tokens that it can have at most: its own limit, and what the context leaves it.
  [[nodiscard]] std::int32_t max_generated() const {
    return std::min(info.max_tokens, info.max_length - info.num_prompt_tokens);
  }
};

/// Gives rows to requests and finds requests by id. A row's generation grows with each owner, so that a stale handle is
/// known; a row with lanes in flight is not given away before their steps have completed. Thread: worker.
class RequestTable {
 public:
  explicit RequestTable(std::int32_t num_rows)
      : rows_(num_rows),
        owners_(static_cast<std::size_t>(num_rows), nullptr),
        num_pending_(static_cast<std::size_t>(num_rows), 0) {}

  /// Takes a request in; it waits for a row. It stays where it is put until it is released.
  RequestState& accept(std::unique_ptr<RequestState> request);
  /// Gives a row to a waiting request. Requires has_free_row().
  void assign_row(RequestState& request);
  /// Forgets the request. Its row, if it had one, is free once step `last_touch` has completed, the last one with a lane of
  /// it.
  void release(RequestState& request, Epoch last_touch);
  /// Steps up to `completed` have completed: rows that waited for them are free.
  void collect(Epoch completed) { rows_.collect(completed); }

  [[nodiscard]] bool has_free_row() const { return rows_.queue().num_free() > 0; }
  /// Null where the request has ended.
  [[nodiscard]] RequestState* find(RequestId id) const;
  /// Null where the row has another owner by now.
  [[nodiscard]] RequestState* find(RequestHandle handle) const {
    return rows_.is_open(handle) ? owners_[static_cast<std::size_t>(handle.row)] : nullptr;
  }
  [[nodiscard]] bool contains(RequestHandle handle) const { return rows_.is_open(handle); }
  /// The row's owner, where that is known to be whom the handle names.
  [[nodiscard]] RequestState* owner(RequestHandle handle) const {
    return owners_[static_cast<std::size_t>(handle.row)];
  }
  /// Requests that were released so far: where it is what it was, whoever was there is.
  [[nodiscard]] std::uint64_t num_released() const { return num_released_; }
  /// Tokens that steps in flight sample for the request of a row. A column apart: a launch counts them and nothing else.
  [[nodiscard]] std::int32_t& num_pending(RequestHandle handle) {
    return num_pending_[static_cast<std::size_t>(handle.row)];
  }
  /// The same, 0 where the request has no row.
  [[nodiscard]] std::int32_t num_pending(const RequestState& request) const {
    const std::int32_t row = request.handle().row;
    return row < 0 ? 0 : num_pending_[static_cast<std::size_t>(row)];
  }
  /// Generated tokens, those of steps in flight included.
  [[nodiscard]] std::int32_t num_launched_tokens(const RequestState& request) const {
    return request.info.num_generated + num_pending(request);
  }
  /// For a sweep over many rows, whose requests lie anywhere: has those behind `index` on their way from memory, the line that
  /// every decode step touches and the facts behind it.
  // Always inline: GCC takes a function that does nothing else for one without effect, and drops its calls.
  [[gnu::always_inline]] inline void prefetch_beyond(std::span<const RequestHandle> handles,
                                                     std::size_t index) const {
    constexpr std::size_t kAhead = 12;
    if (index + kAhead >= handles.size()) {
      return;
    }
    const RequestState* const request =
        owners_[static_cast<std::size_t>(handles[index + kAhead].row)];
    __builtin_prefetch(request);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(request) + 64);
  }
  /// Some request. Requires size() > 0.
  [[nodiscard]] RequestState& any() const { return *by_id_.begin()->second; }
  [[nodiscard]] std::size_t size() const { return by_id_.size(); }
  [[nodiscard]] std::int32_t num_rows() const { return rows_.queue().size(); }

 private:
  static constexpr std::size_t kBlockSize = 64;

  // Requests lie side by side, whatever else their acceptance allocates: a sweep over many then finds them in few pages, and
  // not all in the same few sets of a cache.
  std::vector<std::unique_ptr<RequestState[]>> blocks_;
  std::vector<RequestState*> free_;
  std::unordered_map<RequestId, RequestState*> by_id_;
  lifetime::Rows<> rows_;
  std::vector<RequestState*> owners_;      // by row
  std::vector<std::int32_t> num_pending_;  // by row
  std::uint64_t num_released_ = 0;
};

}  // namespace rigel
