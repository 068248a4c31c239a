#pragma once

// The fixture of kernel tests: buffers with guards around them, outputs that start as NaN, and a case run in every way that
// the device can run it.
//
//   class RmsNormTest : public KernelTest {};
//   TEST_F(RmsNormTest, MatchesTheOracle) {
//     const std::vector<float> x = rounded(Dtype::kBf16, random_floats(rows * dim, 1));
//     in_every_mode([&] {
//       const DeviceView out = output(Dtype::kBf16, {rows, dim});
//       rms_norm(stream(), out, upload(Dtype::kBf16, {rows, dim}, x), ...);
//       expect_close(download_floats(out), oracle, {.relative = 0x1p-8, .absolute = 1e-6});
//     });
//   }

#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rigel::kernels {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// How a case runs: the native variant, or the device text in some order of threads and blocks. One way on CUDA.
struct KernelMode {
  std::string name;
  DeviceOptions options;
};
[[nodiscard]] const std::vector<KernelMode>& kernel_modes();

/// A value is close when |actual - expected| <= absolute + relative * |expected|. NaN never is, unless both are.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

class KernelTest : public ::testing::Test {
 protected:
  /// Skips where a CUDA build has no GPU, so that the test reports *skipped*, not passed.
  void SetUp() override;

  /// Runs `body` once in every mode. After each, waits for the stream and checks the guards of all buffers made in `body`,
  /// which are then freed.
  void in_every_mode(const std::function<void()>& body);
  /// Runs `body` once, in the mode that the product uses.
  void in_default_mode(const std::function<void()>& body);
  /// Runs `body` once in a mode of the test's own; the device stays open under the mode's name.
  void run_in(const KernelMode& mode, const std::function<void()>& body);

  // Only inside a body.
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] StreamRef stream() { return *stream_; }

  /// A guarded device buffer that holds `values`, contiguous. The overload for floats converts to a float dtype.
  template <class T>
  [[nodiscard]] DeviceView upload(const Shape& shape, const std::vector<T>& values) {
    return upload_bytes(dtype_of<T>, shape, values.data(), values.size());
  }
  [[nodiscard]] DeviceView upload(Dtype dtype, const Shape& shape,
                                  const std::vector<float>& values);
  /// A guarded device buffer filled with 0xFF: NaN for floats, -1 for integers.
  [[nodiscard]] DeviceView output(Dtype dtype, const Shape& shape);
  /// A guarded device buffer for a workspace of so many bytes, filled with 0xFF.
  [[nodiscard]] DeviceView workspace(std::int64_t num_bytes);

  /// The elements of a contiguous view, after everything on the stream is done.
  template <class T>
  [[nodiscard]] std::vector<T> download(ConstDeviceView view) {
    RIGEL_CHECK(dtype_of<T> == view.dtype(), "wrong dtype: the view is {}", name_of(view.dtype()));
    std::vector<T> values(static_cast<std::size_t>(view.num_elements()));
    download_bytes(view, values.data());
    return values;
  }
  /// The same for any float dtype, widened.
  [[nodiscard]] std::vector<float> download_floats(ConstDeviceView view);
  /// The same as raw bytes, to compare bits.
  [[nodiscard]] std::vector<std::byte> download_bits(ConstDeviceView view);

 private:
  struct Guarded {
    DeviceBuffer buffer;
    std::int64_t num_bytes;
  };

  [[nodiscard]] DeviceView guarded(Dtype dtype, const Shape& shape);
  [[nodiscard]] DeviceView upload_bytes(Dtype dtype, const Shape& shape, const void* values,
                                        std::size_t num_values);
  void download_bytes(ConstDeviceView view, void* values);
  void check_guards(const Guarded& guarded);

  Device* device_ = nullptr;
  Stream* stream_ = nullptr;
  std::vector<Guarded> buffers_;
};

/// `values` as they read after a store in `dtype`: what an oracle must start from.
[[nodiscard]] std::vector<float> rounded(Dtype dtype, const std::vector<float>& values);

/// Uniform in [-scale, scale], the same on every machine.
[[nodiscard]] std::vector<float> random_floats(std::int64_t num_values, std::uint64_t seed,
                                               float scale = 1.0F);

/// Reports the worst of the elements that are not close, with its index; NaN counts as infinitely far.
void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                  Tolerance tolerance);

}  // namespace rigel::kernels
