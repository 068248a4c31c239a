// How fast a lane is sampled, by vocabulary and by how much of it the filters leave.
//
//   bench_sampling --benchmark_filter=top_p      arguments: vocabulary, temperature in hundredths, top_p in hundredths

#include "kernels/sampling.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <span>
#include <vector>

namespace rigel::kernels {
namespace {

/// One lane with logits as a language model gives them: roughly normal, with a few far above.
class Lane {
 public:
  Lane(std::int64_t vocabulary, float temperature, std::int32_t top_k, float top_p)
      : device_(Device::open({})), stream_(*device_), vocabulary_(vocabulary) {
    std::vector<float> logits(static_cast<std::size_t>(vocabulary));
    std::uint64_t state = 0x9E3779B97F4A7C15u;
    for (float& logit : logits) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state >> 40) * 0x1p-24F - 0.5F;
      }
      logit = sum * 3.5F;  // standard deviation 2
    }
    for (std::size_t token = 0; token < logits.size(); token += 997) {
      logits[token] += 5.0F;
    }
    logits_ = upload(Dtype::kF32, logits);
    rows_ = upload(Dtype::kI32, std::vector<std::int32_t>{0});
    temperature_ = upload(Dtype::kF32, std::vector<float>{temperature});
    top_k_ = upload(Dtype::kI32, std::vector<std::int32_t>{top_k});
    top_p_ = upload(Dtype::kF32, std::vector<float>{top_p});
    min_p_ = upload(Dtype::kF32, std::vector<float>{0.0F});
    seeds_ = upload(Dtype::kI64, std::vector<std::int64_t>{7});
    results_ = DeviceBuffer(*device_, Dtype::kI32, {3});
  }

  void sample() {
    const auto one = [&](const DeviceBuffer& buffer, Dtype dtype) {
      return buffer.view(dtype, {1});
    };
    const SamplingColumns columns{one(temperature_, Dtype::kF32), one(top_k_, Dtype::kI32),
                                  one(top_p_, Dtype::kF32), one(min_p_, Dtype::kF32),
                                  one(seeds_, Dtype::kI64)};
    kernels::sample(stream_,
                    {results_.view(Dtype::kI32, {1}), results_.view(Dtype::kI32, {1}, 4),
                     results_.view(Dtype::kI32, {1}, 8)},
                    logits_.view(Dtype::kF32, {1, vocabulary_}), one(rows_, Dtype::kI32),
                    one(rows_, Dtype::kI32), columns, 0);
    stream_.synchronize();
  }
  std::int32_t num_kept() {
    std::int32_t kept[3];
    copy(stream_, host_view(std::span<std::int32_t>(kept)), results_.view(Dtype::kI32, {3}));
    stream_.synchronize();
    return kept[2];
  }

 private:
  template <class T>
  DeviceBuffer upload(Dtype dtype, const std::vector<T>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    DeviceBuffer buffer(*device_, dtype, shape);
    copy(stream_, buffer.view(dtype, shape), const_host_view(std::span<const T>(values)));
    stream_.synchronize();
    return buffer;
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  std::int64_t vocabulary_;
  DeviceBuffer logits_, rows_, temperature_, top_k_, top_p_, min_p_, seeds_, results_;
};

void top_p(benchmark::State& state) {
  Lane lane(state.range(0), static_cast<float>(state.range(1)) / 100.0F, 0,
            static_cast<float>(state.range(2)) / 100.0F);
  for (auto _ : state) {
    lane.sample();
  }
  state.counters["kept"] = lane.num_kept();
}

void top_k(benchmark::State& state) {
  Lane lane(state.range(0), 1.0F, static_cast<std::int32_t>(state.range(1)), 1.0F);
  for (auto _ : state) {
    lane.sample();
  }
  state.counters["kept"] = lane.num_kept();
}

BENCHMARK(top_p)
    ->ArgNames({"vocabulary", "temperature", "top_p"})
    ->ArgsProduct({{49'152, 262'144}, {70, 100, 200}, {50, 95}})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(top_k)
    ->ArgNames({"vocabulary", "k"})
    ->ArgsProduct({{49'152, 262'144}, {40, 3'000, 20'000}})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rigel::kernels

BENCHMARK_MAIN();
