#pragma once

// Fibers: the stacks on which CUDA threads wait for each other. A fiber never leaves its OS thread.

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#endif
// SIMT_TSAN comes from the build: the executor itself is compiled without -fsanitize=thread and so can't ask the compiler.
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
#define SIMT_SANITIZED 1
#endif

#if !defined(__x86_64__)
#error \
    "simt: the context switch is written for x86-64 only; add this processor's to simt/fiber.h and simt/fiber_cpu.cc"
#endif

namespace simt::detail {

/// Where a stopped stack continues.
struct Context {
  void* stack_pointer;
  void* frame_pointer;
  void* instruction;
};

/// A decision of the scheduler: leave `from`, continue `to`. `from` is null when the caller simply goes on.
struct Switch {
  Context* from;
  Context* to;
};

/// Stops here and continues `to`; returns when something continues `from`. Every register but the two pointers counts as
/// destroyed, so the compiler saves what lives, and no more. Inlined into the kernel it ends in an indirect jump that the
/// branch predictor learns per place; a shared routine ending in `ret` mispredicts at each change of place.
[[gnu::always_inline]] inline void switch_context(Switch decision) {
  Context* from = decision.from;
  Context* to = decision.to;
  asm volatile(
      "leaq 1f(%%rip), %%rcx\n\t"
      "movq %%rsp, 0(%0)\n\t"
      "movq %%rbp, 8(%0)\n\t"
      "movq %%rcx, 16(%0)\n\t"
      "movq 0(%1), %%rsp\n\t"
      "movq 8(%1), %%rbp\n\t"
      "jmpq *16(%1)\n"
      "1:\n\t"
      : "+a"(from), "+d"(to)
      :
      : "rcx", "rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory",
        "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#if defined(__AVX512F__)
        ,
        "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6",
        "k7"
#endif
  );
}

struct Fiber {
  Context context;
  std::byte* stack;            // lowest usable byte
  std::size_t stack_bytes;     // above it
  void* fake_stack;            // AddressSanitizer's, while stopped
  void* race_fiber = nullptr;  // ThreadSanitizer's
  const void* sync_object;     // what the thread on it acquires when it goes on (ThreadSanitizer)
};

/// Most threads of a block, and so most fibers of an OS thread.
inline constexpr int kMaxFibers = 1024;

/// The stacks of one OS thread: one mapping, a guard page below each stack, memory touched on first use only.
class FiberStacks {
 public:
  FiberStacks();
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// The fiber of that index, ready to be continued.
  Fiber& fiber(int index) {
    while (num_ready_ <= index) {
      make_next();
    }
    return fibers_[index];
  }
  /// One more fiber, never handed out before since the last restart.
  Fiber& make_fiber() { return fiber(num_handed_out_++); }
  /// Whether an address lies in a guard page: a fault there is a stack overflow of a kernel.
  [[nodiscard]] bool is_guard(const void* address) const;
  /// Makes every fiber start anew: what ran on the stacks is abandoned.
  void restart();
  /// Gives each fiber new pages and a new identity, so that ThreadSanitizer forgets what ran there.
  void forget();

 private:
  void make_next();
  void boot(Fiber& fiber, int index);
  void destroy_retired();

  std::byte* mapping_ = nullptr;
  int num_ready_ = 0;
  int num_handed_out_ = 0;
  Fiber fibers_[kMaxFibers];
  void* retired_[kMaxFibers];  // ThreadSanitizer's, of the block in front
  int num_retired_ = 0;
};

}  // namespace simt::detail
