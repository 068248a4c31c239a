#include "simt/fault.h"

#include <cstring>

namespace simt::detail {

namespace {

constexpr const char* kOperationNames[] = {
    "__syncwarp",    "shfl_idx",           "shfl_xor",        "shfl_up",         "shfl_down",
    "__ballot_sync", "__match_any_sync",   "warp_sum<float>", "warp_max<float>", "warp_sum<int>",
    "warp_max<int>", "warp_max<unsigned>", "ldmatrix",        "mma_tile",
};
static_assert(sizeof(kOperationNames) / sizeof(kOperationNames[0]) ==
              static_cast<int>(WarpOperation::kMatrixMultiply) + 1);

void describe_barrier(const Fault& fault, uint3 thread, Status& status) {
  const char* file = file_of(fault.site);
  switch (fault.kind) {
    case FaultKind::kReturnedBeforeBarrier:
      status.append(
          "divergence: thread (%u,%u,%u) returned from the kernel while %d threads wait "
          "at __syncthreads %s:%d",
          thread.x, thread.y, thread.z, fault.other, file_of(fault.other_site),
          fault.other_site.line);
      break;
    case FaultKind::kBarrierAfterReturn:
      status.append(
          "divergence: thread (%u,%u,%u) is at __syncthreads %s:%d but %d threads have "
          "returned from the kernel",
          thread.x, thread.y, thread.z, file, fault.site.line, fault.other);
      break;
    default:
      status.append(
          "divergence: thread (%u,%u,%u) is at __syncthreads %s:%d but %d other threads "
          "are at %s:%d",
          thread.x, thread.y, thread.z, file, fault.site.line, fault.other,
          file_of(fault.other_site), fault.other_site.line);
  }
}

void describe_warp(const Fault& fault, uint3 thread, Status& status) {
  const char* file = file_of(fault.site);
  const char* operation = name_of(fault.operation);
  const int warp = fault.thread / 32;
  switch (fault.kind) {
    case FaultKind::kReturnedBeforeWarp:
      status.append(
          "divergence: thread (%u,%u,%u) returned from the kernel while warp %d lanes "
          "%08x wait for it in %s at %s:%d",
          thread.x, thread.y, thread.z, warp, fault.other_mask, name_of(fault.other_operation),
          file_of(fault.other_site), fault.other_site.line);
      break;
    case FaultKind::kWarpAfterReturn:
      status.append(
          "bad mask: thread (%u,%u,%u) in %s at %s:%d waits for lanes %08x of warp %d, of "
          "which %08x have returned or do not exist",
          thread.x, thread.y, thread.z, operation, file, fault.site.line, fault.mask, warp,
          fault.other_mask);
      break;
    case FaultKind::kLaneOutsideMask:
      status.append(
          "bad mask: thread (%u,%u,%u), lane %d, is not in the mask %08x of its %s at %s:%d",
          thread.x, thread.y, thread.z, fault.thread % 32, fault.mask, operation, file,
          fault.site.line);
      break;
    case FaultKind::kShuffleSource:
      status.append(
          "bad mask: thread (%u,%u,%u) reads lane %d in %s at %s:%d, which is not in the "
          "mask %08x",
          thread.x, thread.y, thread.z, fault.other, operation, file, fault.site.line, fault.mask);
      break;
    default:
      status.append(
          "warp operation mismatch: thread (%u,%u,%u) is in %s at %s:%d with mask %08x, "
          "but lanes of its warp are in %s at %s:%d with mask %08x",
          thread.x, thread.y, thread.z, operation, file, fault.site.line, fault.mask,
          name_of(fault.other_operation), file_of(fault.other_site), fault.other_site.line,
          fault.other_mask);
  }
}

}  // namespace

const char* name_of(WarpOperation operation) {
  return kOperationNames[static_cast<int>(operation)];
}

const char* file_of(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return slash == nullptr ? site.file : slash + 1;
}

void describe(const Fault& fault, uint3 thread, Status& status) {
  switch (fault.kind) {
    case FaultKind::kNone:
      break;
    case FaultKind::kReturnedBeforeBarrier:
    case FaultKind::kBarrierAfterReturn:
    case FaultKind::kBarrierSites:
      describe_barrier(fault, thread, status);
      break;
    case FaultKind::kReturnedBeforeWarp:
    case FaultKind::kWarpAfterReturn:
    case FaultKind::kWarpMismatch:
    case FaultKind::kLaneOutsideMask:
    case FaultKind::kShuffleSource:
      describe_warp(fault, thread, status);
      break;
    case FaultKind::kDeadlock:
      status.append("deadlock: no thread can run");
      break;
    case FaultKind::kMisaligned:
      status.append("misaligned access: thread (%u,%u,%u) accesses %u bytes at %p, %s:%d", thread.x,
                    thread.y, thread.z, fault.num_bytes, fault.address, file_of(fault.site),
                    fault.site.line);
      break;
    case FaultKind::kSharedOverflow:
      status.append("shared memory: %u bytes at %s:%d do not fit (48 KB static, 227 KB in all)",
                    fault.num_bytes, file_of(fault.site), fault.site.line);
      break;
    case FaultKind::kTooManyCopies:
      status.append("cp.async: thread (%u,%u,%u) has more than %d copies in flight at %s:%d",
                    thread.x, thread.y, thread.z, fault.other, file_of(fault.site),
                    fault.site.line);
      break;
    case FaultKind::kUnordered:
      status.append(
          "programmatic launch: %d threads of the block do not begin with wait_for_predecessor, or "
          "call it twice",
          fault.other);
      break;
  }
}

}  // namespace simt::detail
