#include "simt/executor.h"
#include "simt/multiprocessor.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

namespace simt {

namespace {

// CUDA's limits of a launch.
constexpr std::int64_t kMaxGridX = 0x7fffffff;
constexpr unsigned kMaxGridYZ = 65535;
constexpr std::int64_t kMaxBlockThreads = 1024;
constexpr unsigned kMaxBlockZ = 64;

bool plan_is_valid(const LaunchPlan& plan) {
  const dim3 grid = plan.grid;
  const dim3 block = plan.block;
  const bool grid_fits = grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= kMaxGridX &&
                         grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ;
  const bool block_fits = block.x >= 1 && block.y >= 1 && block.z >= 1 && block.z <= kMaxBlockZ &&
                          std::int64_t{block.x} * block.y <= kMaxBlockThreads &&
                          std::int64_t{block.x} * block.y * block.z <= kMaxBlockThreads;
  return grid_fits && block_fits && plan.shared_bytes <= detail::SharedArena::kMaxTotalBytes;
}

void refuse(const detail::KernelCall& call, Status& status) {
  const LaunchPlan& plan = *call.plan;
  status.append(
      "kernel %s: invalid launch: grid (%u,%u,%u), block (%u,%u,%u), %u bytes of shared "
      "memory",
      call.name, plan.grid.x, plan.grid.y, plan.grid.z, plan.block.x, plan.block.y, plan.block.z,
      plan.shared_bytes);
}

// The blocks of a grid in the order that the options ask for. Random: a stride that is prime to their number.
class BlockOrder {
 public:
  BlockOrder(dim3 grid, const Options& options)
      : grid_(grid), num_blocks_(std::int64_t{grid.x} * grid.y * grid.z), order_(options.order) {
    if (order_ == Order::kRandom && num_blocks_ > 2) {
      start_ = static_cast<std::int64_t>(options.seed * 0x9e3779b97f4a7c15u >> 33) % num_blocks_;
      stride_ = 1 + static_cast<std::int64_t>(options.seed * 0xbf58476d1ce4e5b9u >> 33) %
                        (num_blocks_ - 1);
      while (std::gcd(stride_, num_blocks_) != 1) {
        stride_ = stride_ % (num_blocks_ - 1) + 1;
      }
    }
  }

  [[nodiscard]] std::int64_t num_blocks() const { return num_blocks_; }

  [[nodiscard]] uint3 operator[](std::int64_t turn) const {
    std::int64_t block = turn;
    if (order_ == Order::kDescending) {
      block = num_blocks_ - 1 - turn;
    } else if (order_ == Order::kRandom) {
      block = static_cast<std::int64_t>(
          (static_cast<unsigned __int128>(turn) * static_cast<std::uint64_t>(stride_) +
           static_cast<std::uint64_t>(start_)) %
          static_cast<std::uint64_t>(num_blocks_));
    }
    return {static_cast<unsigned>(block % grid_.x),
            static_cast<unsigned>(block / grid_.x % grid_.y),
            static_cast<unsigned>(block / grid_.x / grid_.y)};
  }

 private:
  dim3 grid_;
  std::int64_t num_blocks_;
  Order order_;
  std::int64_t start_ = 0;
  std::int64_t stride_ = 1;
};

bool run_blocks(const detail::KernelCall& call, const Options& options, const BlockOrder& blocks,
                std::pair<std::int64_t, std::int64_t> turns, Status& status) {
  detail::Multiprocessor& multiprocessor = detail::Multiprocessor::of_this_thread();
  multiprocessor.begin_launch(call, options);
  bool ok = true;
  for (std::int64_t turn = turns.first; turn < turns.second && ok; ++turn) {
    ok = multiprocessor.run_block(blocks[turn], status);
  }
  multiprocessor.end_launch();
  return ok;
}

}  // namespace

Executor::Executor(Pool& pool, Options options) : pool_(pool), options_(std::move(options)) {}

Status Executor::run(const detail::KernelCall& call) {
  Status status;
  if (!plan_is_valid(*call.plan)) [[unlikely]] {
    refuse(call, status);
    return status;
  }
  const BlockOrder blocks(call.plan->grid, options_);
  const std::int64_t num_blocks = blocks.num_blocks();
  const int limit = options_.threads > 0 ? options_.threads : pool_.num_threads();
  const std::int64_t num_threads = std::min<std::int64_t>({num_blocks, limit, pool_.num_threads()});
  if (num_threads <= 1) {
    run_blocks(call, options_, blocks, {0, num_blocks}, status);
    return status;
  }
  // A few pieces a thread even out blocks of unequal work; with a limit below the pool's size each thread gets one piece.
  constexpr std::int64_t kPiecesPerThread = 4;
  const std::int64_t pieces_per_thread = num_threads < pool_.num_threads() ? 1 : kPiecesPerThread;
  const std::int64_t num_pieces = std::min(num_blocks, num_threads * pieces_per_thread);
  std::atomic<bool> failed = false;
  pool_.parallel_for(static_cast<int>(num_pieces), [&](int piece) {
    if (failed.load(std::memory_order_relaxed)) {
      return;
    }
    Status mine;
    const std::int64_t first = num_blocks * piece / num_pieces;
    const std::int64_t end = num_blocks * (piece + 1) / num_pieces;
    if (!run_blocks(call, options_, blocks, {first, end}, mine) && !failed.exchange(true)) {
      status = mine;
    }
  });
  return status;
}

}  // namespace simt
