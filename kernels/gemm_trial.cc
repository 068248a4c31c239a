#include "kernels/gemm_trial.h"

#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace rigel::kernels {
namespace {

// A shape of the kind that models have; the row counts take a vector kernel's full and ragged tiles.
constexpr std::int64_t kRows = 192;
constexpr std::int64_t kColumns = 576;
constexpr std::int64_t kMaxCount = 70;
constexpr std::int64_t kCounts[] = {1, 2, 7, 16, 33, 70};
// Sums of 576 products of numbers below 1, rounded in another order.
constexpr float kTolerance = 1e-3f;

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(random()) / static_cast<float>(std::mt19937::max()) - 0.5f;
  }
  return values;
}

template <class T>
std::vector<T> as_elements(const std::vector<float>& values) {
  std::vector<T> elements;
  for (const float value : values) {
    elements.emplace_back(static_cast<T>(value));
  }
  return elements;
}

template <class T>
class Trial {
 public:
  explicit Trial(Device& device) : device_(device), stream_(device) {}

  [[nodiscard]] bool takes(GemmBackend& backend) const {
    return backend.make_packer(dtype_of<T>, kRows, kColumns) != nullptr;
  }

  [[nodiscard]] GemmWeight pack(GemmBackend& backend) const {
    const auto elements = as_elements<T>(random_values(kRows * kColumns, 1));
    const auto packer = backend.make_packer(dtype_of<T>, kRows, kColumns);
    packer->add_rows(0, const_host_view(std::span<const T>(elements)).reshape({kRows, kColumns}));
    GemmWeight weight = packer->finish();
    backend.prepare(weight, {.max_rows = kMaxCount, .output = GemmOutput::kFloat});
    return weight;
  }

  /// Rows [first, first + count) of the same x each time, times the weight.
  [[nodiscard]] std::vector<float> multiply(GemmBackend& backend, const GemmWeight& weight,
                                            std::int64_t first, std::int64_t count) {
    const auto elements = as_elements<T>(random_values(kMaxCount * kColumns, 2));
    const DeviceBuffer x(device_, dtype_of<T>, {kMaxCount, kColumns});
    const DeviceBuffer out(device_, Dtype::kF32, {count, kRows});
    const DeviceView x_view = x.view(dtype_of<T>, {kMaxCount, kColumns});
    const DeviceView out_view = out.view(Dtype::kF32, {count, kRows});
    copy(stream_, x_view, const_host_view(std::span<const T>(elements)).reshape(x_view.shape()));
    backend.run(stream_, {.out = out_view,
                          .x = x_view.slice(0, first, count),
                          .weight = weight,
                          .bias = {},
                          .output = GemmOutput::kFloat});
    std::vector<float> result(static_cast<std::size_t>(count * kRows));
    copy(stream_, host_view(std::span(result)).reshape(out_view.shape()),
         ConstDeviceView(out_view));
    stream_.synchronize();
    return result;
  }

 private:
  Device& device_;
  Stream stream_;
};

template <class T>
bool keeps_bits_of(Device& device, GemmBackend& library, GemmBackend& own) {
  Trial<T> trial(device);
  if (!trial.takes(library)) {
    return true;  // our own code serves this dtype
  }
  const GemmWeight ours = trial.pack(own);
  const GemmWeight theirs = trial.pack(library);
  const std::vector<float> expected = trial.multiply(own, ours, 0, kMaxCount);
  const std::vector<float> whole = trial.multiply(library, theirs, 0, kMaxCount);
  const bool is_close = std::ranges::equal(whole, expected, [](float a, float b) {
    return std::abs(a - b) <= kTolerance;  // false for NaN
  });
  return is_close && std::ranges::all_of(kCounts, [&](std::int64_t count) {
           const std::int64_t first = kMaxCount - count;
           const std::vector<float> part = trial.multiply(library, theirs, first, count);
           return std::memcmp(part.data(), whole.data() + first * kRows,
                              part.size() * sizeof(float)) == 0;
         });
}

}  // namespace

bool keeps_bits(Device& device, GemmBackend& library, GemmBackend& own) {
  return keeps_bits_of<float>(device, library, own) && keeps_bits_of<bf16>(device, library, own);
}

}  // namespace rigel::kernels
