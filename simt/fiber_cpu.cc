#include "simt/fiber.h"
#include "simt/sanitizer.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

// The first frame of every fiber. The unwinder is told that nobody called it, so that a debugger's backtrace ends here.
asm(R"(
.text
.type simt_fiber_boot, @function
simt_fiber_boot:
.cfi_startproc
.cfi_undefined rip
  call simt_fiber_main
  ud2
.cfi_endproc
.size simt_fiber_boot, .-simt_fiber_boot
)");
extern "C" void simt_fiber_boot();

namespace simt::detail {

namespace {

constexpr std::size_t kPage = 4096;

// Unoptimised code and sanitizers need larger frames.
#if defined(SIMT_ASAN)
constexpr std::size_t kStackBytes = 128 * 1024;
#elif defined(SIMT_TSAN) || !defined(__OPTIMIZE__)
constexpr std::size_t kStackBytes = 64 * 1024;
#else
constexpr std::size_t kStackBytes = 16 * 1024;
#endif
constexpr std::size_t kStride = kStackBytes + kPage;
constexpr std::size_t kFibersBytes = kStride * kMaxFibers;

void forget_race_fiber(Fiber& fiber) {
  if (fiber.race_fiber != nullptr) {
    destroy_race_fiber(fiber.race_fiber);
    fiber.race_fiber = nullptr;
  }
}

[[noreturn]] void die(const char* call) {
  std::perror(call);
  std::abort();
}

}  // namespace

FiberStacks::FiberStacks() {
  void* mapping = mmap(nullptr, kFibersBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) {
    die("simt: no address space for the stacks of kernels (mmap)");
  }
  mapping_ = static_cast<std::byte*>(mapping);
}

FiberStacks::~FiberStacks() {
  destroy_retired();
  for (int index = 0; index < num_ready_; ++index) {
    unpoison(fibers_[index].stack, kStackBytes);
    forget_race_fiber(fibers_[index]);
  }
  munmap(mapping_, kFibersBytes);
}

void FiberStacks::destroy_retired() {
  while (num_retired_ > 0) {
    destroy_race_fiber(retired_[--num_retired_]);
  }
}

bool FiberStacks::is_guard(const void* address) const {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(mapping_);
  return offset < kFibersBytes && offset % kStride < kPage;
}

void FiberStacks::make_next() {
  Fiber& fiber = fibers_[num_ready_];
  fiber.stack = mapping_ + static_cast<std::size_t>(num_ready_) * kStride + kPage;
  fiber.stack_bytes = kStackBytes;
  if (mprotect(fiber.stack, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    die("simt: no memory for the stack of a kernel (mprotect)");
  }
  boot(fiber, num_ready_);
  ++num_ready_;
}

void FiberStacks::boot(Fiber& fiber, int index) {
  // Tops at the same page offset would share the same few lines of the L1 cache: stagger them.
  const std::size_t stagger = static_cast<std::size_t>(index % 16) * 64;
  fiber.context.stack_pointer =
      fiber.stack + kStackBytes - stagger;  // 16-byte aligned before the call
  fiber.context.frame_pointer = nullptr;
  fiber.context.instruction = reinterpret_cast<void*>(&simt_fiber_boot);
  fiber.fake_stack = nullptr;
  fiber.sync_object = nullptr;
}

void FiberStacks::restart() {
  num_handed_out_ = 0;
  for (int index = 0; index < num_ready_; ++index) {
    unpoison(fibers_[index].stack, kStackBytes);
    forget_race_fiber(fibers_[index]);
    boot(fibers_[index], index);
  }
}

void FiberStacks::forget() {
  // The detector gives the identity of a fiber that was destroyed to the next ones, and takes those for the same thread: so it
  // lives as long as the fibers of the block after its own.
  destroy_retired();
  for (int index = 0; index < num_ready_; ++index) {
    if (void* const race_fiber = std::exchange(fibers_[index].race_fiber, nullptr)) {
      retired_[num_retired_++] = race_fiber;
    }
    void* pages = mmap(fibers_[index].stack, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_STACK, -1, 0);
    if (pages == MAP_FAILED) {
      die("simt: no memory for the stack of a kernel (mmap)");
    }
  }
  restart();
}

}  // namespace simt::detail
