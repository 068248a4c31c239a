#include "tests/kernels/kernel_test.h"

#if !defined(RIGEL_DEVICE_CUDA)
#include "simt/device_memory.h"
#endif

#include "tensor/copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace rigel::kernels {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::uint8_t kGuardByte = 0xC5;

// Under AddressSanitizer an access to a guard is reported at its line; without it, a changed guard at the end of the case.
void arm([[maybe_unused]] std::byte* guard, [[maybe_unused]] std::int64_t num_bytes) {
#if !defined(RIGEL_DEVICE_CUDA)
  simt::forbid_access(guard, static_cast<std::size_t>(num_bytes));
#endif
}

void disarm([[maybe_unused]] std::byte* guard, [[maybe_unused]] std::int64_t num_bytes) {
#if !defined(RIGEL_DEVICE_CUDA)
  simt::allow_access(guard, static_cast<std::size_t>(num_bytes));
#endif
}

// Devices are opened once a process: a fresh one for each case would mean fresh threads for each.
Device& device_for(const KernelMode& mode) {
  static std::map<std::string, std::unique_ptr<Device>> devices;
  std::unique_ptr<Device>& device = devices[mode.name];
  if (device == nullptr) {
    device = Device::open(mode.options);
  }
  return *device;
}

[[maybe_unused]] DeviceOptions text_options(DeviceOrder order, std::uint64_t seed,
                                            bool cp_async_late) {
  DeviceOptions options;
  options.num_threads = 2;
  options.device_texts = "all";
  options.order = order;
  options.seed = seed;
  options.cp_async_late = cp_async_late;
  return options;
}

std::vector<KernelMode> make_modes() {
  DeviceOptions native;
  native.num_threads = 2;
#if defined(RIGEL_DEVICE_CUDA)
  return {{"cuda", native}};
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // A sanitizer sees a race or a wild access in any order, and takes its time for each.
  return {{"native", native}, {"text, random 1", text_options(DeviceOrder::kRandom, 1, true)}};
#else
  return {{"native", native},
          {"text, ascending", text_options(DeviceOrder::kAscending, 1, true)},
          {"text, descending", text_options(DeviceOrder::kDescending, 1, false)},
          {"text, random 1", text_options(DeviceOrder::kRandom, 1, true)},
          {"text, random 2", text_options(DeviceOrder::kRandom, 2, false)}};
#endif
}

float read_float(Dtype dtype, const std::byte* element) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  if (dtype == Dtype::kBf16) {
    bf16 value;
    std::memcpy(&value, element, sizeof value);
    return static_cast<float>(value);
  }
  RIGEL_CHECK(dtype == Dtype::kF16, "not a float dtype: {}", name_of(dtype));
  f16 value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<float>(value);
}

void write_float(Dtype dtype, float value, std::byte* element) {
  if (dtype == Dtype::kF32) {
    std::memcpy(element, &value, sizeof value);
  } else if (dtype == Dtype::kBf16) {
    const bf16 narrow(value);
    std::memcpy(element, &narrow, sizeof narrow);
  } else {
    RIGEL_CHECK(dtype == Dtype::kF16, "not a float dtype: {}", name_of(dtype));
    const f16 narrow(value);
    std::memcpy(element, &narrow, sizeof narrow);
  }
}

std::vector<std::byte> to_bytes(Dtype dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t index = 0; index < values.size(); ++index) {
    write_float(dtype, values[index], bytes.data() + index * size_of(dtype));
  }
  return bytes;
}

// How far a value is beyond its tolerance, as a multiple of it; above 1 means too far.
double excess(double actual, double expected, Tolerance tolerance) {
  if (std::isnan(actual) || std::isnan(expected)) {
    const bool both = std::isnan(actual) && std::isnan(expected);
    return both ? 0 : std::numeric_limits<double>::infinity();
  }
  if (actual == expected) {
    return 0;
  }
  const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected);
  const double ratio = std::abs(actual - expected) / allowed;
  return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

}  // namespace

const std::vector<KernelMode>& kernel_modes() {
  static const std::vector<KernelMode> modes = make_modes();
  return modes;
}

void KernelTest::SetUp() {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
}

void KernelTest::in_every_mode(const std::function<void()>& body) {
  for (const KernelMode& mode : kernel_modes()) {
    run_in(mode, body);
  }
}

void KernelTest::in_default_mode(const std::function<void()>& body) {
  run_in(kernel_modes().front(), body);
}

void KernelTest::run_in(const KernelMode& mode, const std::function<void()>& body) {
  SCOPED_TRACE(mode.name);
  device_ = &device_for(mode);
  Stream stream(*device_);
  stream_ = &stream;
  try {
    body();
    stream.synchronize();
  } catch (const std::exception& failure) {
    ADD_FAILURE() << "in mode " << mode.name << ": " << failure.what();
  }
  for (const Guarded& buffer : buffers_) {
    check_guards(buffer);
  }
  buffers_.clear();
  stream_ = nullptr;
  device_ = nullptr;
}

DeviceView KernelTest::guarded(Dtype dtype, const Shape& shape) {
  const std::int64_t num_bytes = bytes_of(dtype, shape);
  const Guarded& made = buffers_.emplace_back(
      Guarded{DeviceBuffer(device(), num_bytes + 2 * kGuardBytes), num_bytes});
  const auto bytes = [&](std::int64_t offset, std::int64_t count) {
    return made.buffer.view(Dtype::kU8, {count}, offset);
  };
  fill_bytes(stream(), bytes(0, kGuardBytes), kGuardByte);
  fill_bytes(stream(), bytes(kGuardBytes, num_bytes), 0xFF);
  fill_bytes(stream(), bytes(kGuardBytes + num_bytes, kGuardBytes), kGuardByte);
  stream().synchronize();
  arm(made.buffer.raw(), kGuardBytes);
  arm(made.buffer.raw() + kGuardBytes + num_bytes, kGuardBytes);
  return made.buffer.view(dtype, shape, kGuardBytes);
}

void KernelTest::check_guards(const Guarded& guarded) {
  const std::int64_t behind = kGuardBytes + guarded.num_bytes;
  disarm(guarded.buffer.raw(), kGuardBytes);
  disarm(guarded.buffer.raw() + behind, kGuardBytes);
  for (const std::int64_t offset : {std::int64_t{0}, behind}) {
    std::vector<std::uint8_t> guard(static_cast<std::size_t>(kGuardBytes));
    download_bytes(guarded.buffer.view(Dtype::kU8, {kGuardBytes}, offset), guard.data());
    const auto changed =
        std::find_if(guard.begin(), guard.end(), [](auto byte) { return byte != kGuardByte; });
    if (changed != guard.end()) {
      ADD_FAILURE() << "wrote outside a buffer of " << guarded.num_bytes << " bytes, at offset "
                    << offset + (changed - guard.begin()) - kGuardBytes;
    }
  }
}

DeviceView KernelTest::output(Dtype dtype, const Shape& shape) {
  return guarded(dtype, shape);
}

DeviceView KernelTest::workspace(std::int64_t num_bytes) {
  return guarded(Dtype::kU8, {num_bytes});
}

DeviceView KernelTest::upload(Dtype dtype, const Shape& shape, const std::vector<float>& values) {
  return upload_bytes(dtype, shape, to_bytes(dtype, values).data(), values.size());
}

DeviceView KernelTest::upload_bytes(Dtype dtype, const Shape& shape, const void* values,
                                    std::size_t num_values) {
  RIGEL_CHECK(static_cast<std::size_t>(shape.num_elements()) == num_values,
              "the shape {} does not hold {} values", to_string(shape), num_values);
  const DeviceView target = guarded(dtype, shape);
  // Pageable memory: the copy is done when the call returns.
  copy(stream(), target, ConstHostView(static_cast<const std::byte*>(values), dtype, shape));
  return target;
}

void KernelTest::download_bytes(ConstDeviceView view, void* values) {
  copy(stream(), HostView(static_cast<std::byte*>(values), view.dtype(), view.shape()), view);
  stream().synchronize();
}

std::vector<std::byte> KernelTest::download_bits(ConstDeviceView view) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.num_bytes()));
  download_bytes(view, bytes.data());
  return bytes;
}

std::vector<float> KernelTest::download_floats(ConstDeviceView view) {
  const std::vector<std::byte> bytes = download_bits(view);
  std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
  for (std::size_t index = 0; index < values.size(); ++index) {
    values[index] = read_float(view.dtype(), bytes.data() + index * size_of(view.dtype()));
  }
  return values;
}

std::vector<float> rounded(Dtype dtype, const std::vector<float>& values) {
  const std::vector<std::byte> bytes = to_bytes(dtype, values);
  std::vector<float> result(values.size());
  for (std::size_t index = 0; index < values.size(); ++index) {
    result[index] = read_float(dtype, bytes.data() + index * size_of(dtype));
  }
  return result;
}

std::vector<float> random_floats(std::int64_t num_values, std::uint64_t seed, float scale) {
  std::vector<float> values(static_cast<std::size_t>(num_values));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (float& value : values) {
    // xorshift64*: the upper 24 bits fill a float's mantissa.
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const auto bits = static_cast<std::uint32_t>((state * 0x2545F4914F6CDD1Du) >> 40);
    value = (static_cast<float>(bits) * 0x1p-23F - 1.0F) * scale;
  }
  return values;
}

void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                  Tolerance tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  std::size_t worst_index = 0;
  std::size_t num_far = 0;
  for (std::size_t index = 0; index < actual.size(); ++index) {
    const double ratio = excess(static_cast<double>(actual[index]), expected[index], tolerance);
    num_far += ratio > 1 ? 1 : 0;
    if (ratio > worst) {
      worst = ratio;
      worst_index = index;
    }
  }
  EXPECT_EQ(num_far, 0U) << "the worst of " << actual.size() << " elements is " << worst_index
                         << ": got " << actual[worst_index] << ", expected "
                         << expected[worst_index] << ", " << worst << " times the tolerance";
}

}  // namespace rigel::kernels
