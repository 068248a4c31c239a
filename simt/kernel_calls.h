#pragma once

// What kernel text calls on the host: the few entries of the executor, kept apart from its insides. Everything here is about
// the block that the calling OS thread runs.

#include "simt/fiber.h"
#include "simt/launch_plan.h"
#include "simt/site.h"

#include <cstddef>
#include <cstdint>

// CUDA's built-in variables: the scheduler sets them at each change of thread.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace simt::detail {

/// Operations in which lanes of a warp meet. The names in messages are in fault_cpu.cc, in the same order.
enum class WarpOperation : std::uint8_t {
  kSync,
  kShuffleIndex,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kMatchAny,
  kSumFloat,
  kMaxFloat,
  kSumInt,
  kMaxInt,
  kMaxUnsigned,
  kMatrixLoad,
  kMatrixMultiply,
};

/// One lane's part of a warp operation: an operand (or the address of one) and the lane number, distance or width.
struct LaneOperand {
  std::uint64_t value;
  unsigned argument;
};

[[nodiscard]] Switch arrive_at_barrier(Site site);
[[nodiscard]] Switch arrive_at_warp(WarpOperation operation, LaneOperand operand, unsigned mask,
                                    Site site);

/// Where the running thread finds the result of its last warp operation.
extern constinit thread_local std::uint64_t* warp_result;

/// Carries out a switch and tells the sanitizers.
void wait_told(Switch decision);

/// Waits as the scheduler decided.
[[gnu::always_inline]] inline void wait(Switch decision) {
#if defined(SIMT_SANITIZED)
  wait_told(decision);
#else
  if (decision.from != nullptr) {
    switch_context(decision);
  }
#endif
}

/// The block's memory of one SIMT_SHARED, 64-byte aligned.
[[nodiscard]] void* shared_array(const void* key, std::size_t num_bytes, Site site);
/// The block's dynamic shared memory, 64-byte aligned.
[[nodiscard]] void* dynamic_shared();

/// cp.async of 16 bytes (zeros from null), its groups, and the wait for all but the newest of them.
void issue_async_copy(void* to, const void* from, Site site);
void commit_async_copies();
void wait_async_copies(int num_newest_groups);

/// The running thread has waited for the launch before its own.
void note_predecessor_wait();

[[noreturn, gnu::cold]] void fail_alignment(const void* address, unsigned num_bytes, Site site);

inline void check_alignment(const void* address, unsigned num_bytes, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % num_bytes != 0) [[unlikely]] {
    fail_alignment(address, num_bytes, site);
  }
}

}  // namespace simt::detail
