#pragma once

#include <cstdint>

namespace rigel {

/// What a thread has asked of the allocator, of mutexes and of the kernel since it began.
struct ThreadCosts {
  std::int64_t allocations = 0;  // by operator new, in this program and its libraries
  std::int64_t locks = 0;        // of mutexes, in this program's own code
  std::int64_t syscalls = 0;     // while a SyscallCount lives; without those below
  std::int64_t sleeps = 0;       // system calls of Sleeper: sleeping oneself, waking others

  friend ThreadCosts operator-(const ThreadCosts& a, const ThreadCosts& b) {
    return {a.allocations - b.allocations, a.locks - b.locks, a.syscalls - b.syscalls,
            a.sleeps - b.sleeps};
  }
  friend bool operator==(const ThreadCosts&, const ThreadCosts&) = default;
};

/// Of the calling thread. Counting costs an increment of a thread's own variable. Under a sanitizer, which has an allocator
/// and mutexes of its own, nothing is counted: see counts_thread_costs.
[[nodiscard]] ThreadCosts thread_costs();
[[nodiscard]] bool counts_thread_costs();

/// System calls of the calling thread count as sleeps while one of these lives.
class CostsApart {
 public:
  CostsApart();
  ~CostsApart();
  CostsApart(const CostsApart&) = delete;
  CostsApart& operator=(const CostsApart&) = delete;
};

/// Counts the calling thread's system calls while it lives, by having the kernel hand each of them to a signal handler
/// (Linux's syscall user dispatch), which makes the call itself: about a microsecond more a call, nothing for code that makes
/// none. For measurements. Thread: made and ended by the thread that is counted; one a thread.
class SyscallCount {
 public:
  SyscallCount();
  ~SyscallCount();
  SyscallCount(const SyscallCount&) = delete;
  SyscallCount& operator=(const SyscallCount&) = delete;

  /// False where the kernel or the processor has no such thing: then nothing is counted.
  [[nodiscard]] bool works() const { return works_; }

 private:
  bool works_ = false;
};

}  // namespace rigel
