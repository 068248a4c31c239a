// How fast products run on this machine, against what it could do: the read bandwidth of plain memory for few rows, and
// the FMA peak for many.
//
//   bench_gemm --benchmark_filter=N:576      counters: weights = bytes of W a second, flops = FLOP a second

#include "kernels/gemm.h"
#include "simt/pool.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace rigel::kernels {
namespace {

std::unique_ptr<Device> open_device(int num_threads) {
  DeviceOptions options;
  options.num_threads = num_threads;
  return Device::open(options);
}

GemmWeight make_weight(Gemm& gemm, Dtype dtype, std::int64_t n, std::int64_t k) {
  // 0x3C003C00 is a small number as f32 and twice one as bf16.
  const std::vector<std::uint32_t> row(static_cast<std::size_t>(k), 0x3C003C00U);
  const ConstHostView view(reinterpret_cast<const std::byte*>(row.data()), dtype, {1, k});
  GemmWeightBuilder builder(gemm, dtype, n, k);
  for (std::int64_t i = 0; i < n; ++i) {
    builder.add_rows(i, view);
  }
  return builder.finish();
}

/// One product a step. Arguments: threads, M, N, K, bf16 or not.
void gemm_step(benchmark::State& state, GemmLibrary library) {
  const auto device = open_device(static_cast<int>(state.range(0)));
  const std::int64_t m = state.range(1);
  const std::int64_t n = state.range(2);
  const std::int64_t k = state.range(3);
  const Dtype dtype = state.range(4) != 0 ? Dtype::kBf16 : Dtype::kF32;
  const Stream stream(*device);
  Gemm gemm(*device, {.library = library});
  const GemmWeight weight = make_weight(gemm, dtype, n, k);
  gemm.prepare(weight, {.max_rows = m, .output = GemmOutput::kFloat});
  const DeviceBuffer x(*device, dtype, {m, k});
  const DeviceBuffer out(*device, Dtype::kF32, {m, n});
  fill_bytes(stream, x.view(dtype, {m, k}), 0x3C);
  for (auto _ : state) {
    gemm.run(stream, out.view(Dtype::kF32, {m, n}), x.view(dtype, {m, k}), weight, {},
             GemmOutput::kFloat);
    stream.synchronize();
  }
  const auto per_second = [&](std::int64_t count) {
    return benchmark::Counter(static_cast<double>(count),
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["weights"] = per_second(n * k * static_cast<std::int64_t>(size_of(dtype)));
  state.counters["flops"] = per_second(2 * m * n * k);
  state.SetLabel(gemm.description());
}

/// Reads 128 MiB, far more than the caches hold: what one row of a large weight is held against.
void read_memory(benchmark::State& state) {
  simt::Pool pool(static_cast<int>(state.range(0)));
  const std::vector<std::uint64_t> words(std::size_t{16} << 20, 1);
  const int num_items = 32;
  const std::size_t share = words.size() / num_items;
  for (auto _ : state) {
    pool.parallel_for(num_items, [&](int item) {
      const auto begin = words.begin() + static_cast<std::ptrdiff_t>(item * share);
      benchmark::DoNotOptimize(
          std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(share), std::uint64_t{0}));
    });
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(words.size() * sizeof(std::uint64_t)));
}
BENCHMARK(read_memory)->ArgName("threads")->RangeMultiplier(2)->Range(1, 64)->UseRealTime();

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "M", "N", "K", "bf16"})->UseRealTime();
  struct Shape {
    std::int64_t n, k;
  };
  for (const std::int64_t bf16 : {1, 0}) {
    for (const Shape shape :
         {Shape{576, 576}, Shape{1536, 576}, Shape{576, 1536}, Shape{49152, 576}}) {
      for (const std::int64_t m : {1, 4, 16, 64, 512}) {
        for (const std::int64_t threads : {1, 2}) {
          bench->Args({threads, m, shape.n, shape.k, bf16});
        }
      }
    }
  }
}
BENCHMARK_CAPTURE(gemm_step, own, GemmLibrary::kOwn)->Apply(shapes);
BENCHMARK_CAPTURE(gemm_step, automatic, GemmLibrary::kAuto)->Apply(shapes);

}  // namespace
}  // namespace rigel::kernels

BENCHMARK_MAIN();
