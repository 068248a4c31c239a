#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace simt {

/// A fixed set of OS threads for short parallel loops: `num_threads` - 1 of its own plus the caller.
///
/// Its threads spin for about 20 us after a loop and then sleep, so loops in a row start within a microsecond and an idle
/// pool costs nothing. Thread: any; while one caller is inside, loops of others (and nested ones) run on their callers.
class Pool {
 public:
  explicit Pool(int num_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls `body(item)` once for each item in [0, num_items) and returns when all are done. Items are handed out in order,
  /// one at a time: give each at least 10 us of work. `body` must not throw. One item runs inline.
  template <class F>
  void parallel_for(int num_items, F&& body) {
    if (num_items <= 1 || threads_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
      for (int item = 0; item < num_items; ++item) {
        body(item);
      }
      return;
    }
    using Body = std::remove_reference_t<F>;
    run_job(
        num_items, [](void* context, int item) { (*static_cast<Body*>(context))(item); },
        const_cast<std::remove_const_t<Body>*>(std::addressof(body)));
    busy_.store(false, std::memory_order_release);
  }

 private:
  using Function = void (*)(void* context, int item);

  void run_job(int num_items, Function function, void* context);
  void serve();
  bool take_and_run();
  void finish_group(std::uint32_t num_groups);
  bool wait_for_job();

  // A ticket says which job is on offer, how many groups of items it has and which comes next, in one word: a thread that
  // takes a group by compare-exchange thereby knows that the job's fields below belong to it. Late wakers find no group.
  struct alignas(64) {
    std::atomic<std::uint64_t> ticket{0};
  } offer_;
  struct alignas(64) {
    std::atomic<std::uint32_t> groups_done{0};
  } progress_;
  struct alignas(64) {
    std::atomic<std::uint32_t> wake_count{0};
    std::atomic<int> num_asleep{0};
    std::atomic<bool> stopping{false};
  } sleep_;

  Function function_ = nullptr;
  void* context_ = nullptr;
  int num_items_ = 0;
  int group_items_ = 1;

  alignas(64) std::atomic<bool> busy_{false};
  std::vector<std::thread> threads_;
};

}  // namespace simt
