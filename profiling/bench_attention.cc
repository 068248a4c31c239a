// How fast attention runs for the shape of a small model (9 heads, 3 kv heads, 64 elements, bf16), on scattered pages.
//
//   bench_attention --benchmark_filter=prefill      counters: flops = FLOP a second, kv = bytes of K and V a second

#include "kernels/attention.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace rigel::kernels {
namespace {

constexpr int kHeads = 9;
constexpr int kKvHeads = 3;
constexpr int kHeadSize = 64;
constexpr int kPageSize = 16;

std::unique_ptr<Device> open_device(int num_threads) {
  DeviceOptions options;
  options.num_threads = num_threads;
  return Device::open(options);
}

DeviceBuffer upload(Device& device, StreamRef stream, const Shape& shape,
                    const std::vector<std::int32_t>& values) {
  DeviceBuffer buffer(device, Dtype::kI32, shape);
  copy(stream, buffer.view(Dtype::kI32, {shape.num_elements()}),
       const_host_view(std::span<const std::int32_t>(values)));
  stream.synchronize();
  return buffer;
}

/// Tokens of one or more requests with their cache, all elements the same small number.
class Batch {
 public:
  Batch(int num_threads, int num_requests, int context, const std::vector<std::int32_t>& rows,
        const std::vector<std::int32_t>& positions)
      : device_(open_device(num_threads)),
        stream_(*device_),
        num_tokens_(static_cast<std::int64_t>(rows.size())),
        pages_of_request_(context / kPageSize + 1),
        num_pages_(std::int64_t{num_requests} * pages_of_request_ + 1),
        qkv_(*device_, Dtype::kBf16, {num_tokens_, kWidth}),
        out_(*device_, Dtype::kBf16, {num_tokens_, kHeads * kHeadSize}),
        kv_(*device_, Dtype::kBf16, {num_pages_, 2, kKvHeads, kPageSize, kHeadSize}),
        rows_(upload(*device_, stream_, {num_tokens_}, rows)),
        positions_(upload(*device_, stream_, {num_tokens_}, positions)) {
    std::vector<std::int32_t> table;
    for (std::int64_t page = num_pages_ - 1; page > 0; --page) {
      table.push_back(static_cast<std::int32_t>(page));
    }
    page_table_ = upload(*device_, stream_, {num_requests, pages_of_request_}, table);
    // 0x3C3C is 0.0115 as bf16.
    fill_bytes(stream_, qkv_.view(Dtype::kU8, {qkv_.num_bytes()}), 0x3C);
    fill_bytes(stream_, kv_.view(Dtype::kU8, {kv_.num_bytes()}), 0x3C);
    stream_.synchronize();
  }

  Device& device() { return *device_; }
  StreamRef stream() { return stream_; }
  AttentionArgs args() const {
    return {.out = out_.view(Dtype::kBf16, {num_tokens_, kHeads * kHeadSize}),
            .q = qkv_.view(Dtype::kBf16, {num_tokens_, kWidth}).slice(1, 0, kHeads * kHeadSize),
            .kv_layer = kv_.view(Dtype::kBf16, {num_pages_, 2, kKvHeads, kPageSize, kHeadSize}),
            .page_table = page_table_.view(
                Dtype::kI32, {page_table_.num_bytes() / 4 / pages_of_request_, pages_of_request_}),
            .token_rows = rows_.view(Dtype::kI32, {num_tokens_}),
            .positions = positions_.view(Dtype::kI32, {num_tokens_}),
            .scale = 0.125F};
  }

 private:
  static constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kHeadSize;

  std::unique_ptr<Device> device_;
  Stream stream_;
  std::int64_t num_tokens_;
  std::int64_t pages_of_request_;
  std::int64_t num_pages_;
  DeviceBuffer qkv_;
  DeviceBuffer out_;
  DeviceBuffer kv_;
  DeviceBuffer rows_;
  DeviceBuffer positions_;
  DeviceBuffer page_table_;
};

benchmark::Counter rate_of(double count) {
  return benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate);
}

/// Arguments: threads, tokens of the prompt.
void prefill(benchmark::State& state) {
  const auto num_tokens = static_cast<std::int32_t>(state.range(1));
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> tiles;
  for (std::int32_t token = 0; token < num_tokens; ++token) {
    positions.push_back(token);
    if (token % kPrefillTile == 0) {
      tiles.insert(tiles.end(), {token, std::min(kPrefillTile, num_tokens - token)});
    }
  }
  Batch batch(static_cast<int>(state.range(0)), 1, num_tokens,
              std::vector<std::int32_t>(positions.size(), 0), positions);
  const Shape shape{static_cast<std::int64_t>(tiles.size() / 2), 2};
  const DeviceBuffer device_tiles = upload(batch.device(), batch.stream(), shape, tiles);
  for (auto _ : state) {
    attend_prefill(batch.stream(), batch.args(), device_tiles.view(Dtype::kI32, shape));
    batch.stream().synchronize();
  }
  const double pairs = 0.5 * num_tokens * (num_tokens + 1.0);
  state.counters["flops"] = rate_of(4.0 * kHeads * kHeadSize * pairs);
}

/// Arguments: threads, requests, keys of each.
void decode(benchmark::State& state) {
  const auto num_requests = static_cast<std::int32_t>(state.range(1));
  const auto context = static_cast<std::int32_t>(state.range(2));
  std::vector<std::int32_t> rows;
  for (std::int32_t row = 0; row < num_requests; ++row) {
    rows.push_back(row);
  }
  Batch batch(static_cast<int>(state.range(0)), num_requests, context, rows,
              std::vector<std::int32_t>(rows.size(), context - 1));
  const std::int64_t num_bytes =
      attend_decode_workspace_bytes(num_requests, context, kHeads, kHeadSize);
  const DeviceBuffer workspace(batch.device(), Dtype::kU8, {num_bytes});
  for (auto _ : state) {
    attend_decode(batch.stream(), batch.args(), 0, num_requests,
                  workspace.view(Dtype::kU8, {num_bytes}));
    batch.stream().synchronize();
  }
  state.counters["kv"] = rate_of(4.0 * kKvHeads * kHeadSize * num_requests * context);
}

BENCHMARK(prefill)
    ->ArgNames({"threads", "tokens"})
    ->ArgsProduct({{1, 2}, {64, 512, 2048}})
    ->UseRealTime();
BENCHMARK(decode)
    ->ArgNames({"threads", "requests", "keys"})
    ->ArgsProduct({{1, 2}, {1, 16}, {100, 1000, 4000}})
    ->UseRealTime();

}  // namespace
}  // namespace rigel::kernels

BENCHMARK_MAIN();
