#include "kernels/gemm_backend.h"
#include "kernels/gemm_device.h"
#include "kernels/gemm_native.h"
#include "kernels/gemm_own.h"
#include "kernels/gemm_panels.h"
#include "kernels/native.h"
#include "simt/options.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/launch.h"

#include <memory>
#include <vector>

namespace rigel::kernels {
namespace {

constexpr int kGemmBlock = 128;
constexpr int kBiasBlock = 256;
// Decode steps of few rows take the flat tile: idle rows of the tall one would cost eight times the arithmetic.
constexpr int kFlatRows = kGemmBlock / kGemmPanelColumns;
constexpr int kTallRows = 64;

int tile_rows(const GemmParams& params) {
  return params.num_rows <= 2 * kFlatRows ? kFlatRows : kTallRows;
}

template <class T>
void launch_gemm(StreamRef stream, const GemmParams& params) {
  const LaunchPlan plan = gemm_plan(params);
  if (tile_rows(params) == kFlatRows) {
    launch<gemm_kernel<T, kGemmBlock, kFlatRows>>(stream, "gemm", plan, params);
  } else {
    launch<gemm_kernel<T, kGemmBlock, kTallRows>>(stream, "gemm", plan, params);
  }
}

/// The device text on CUDA, the native variant on the CPU. RIGEL_SIMT=all leaves products native, since emulated ones would
/// take minutes a step; a list that names "gemm" runs the device text.
class OwnGemm final : public GemmBackend {
 public:
  explicit OwnGemm(Device& device)
      : device_(device),
        runs_device_text_(
            device.options().device_texts != "all" &&
            simt::wants_device_text(simt::Options{.device_texts = device.options().device_texts},
                                    "gemm")) {}

  std::string description() const override {
    if (device_.is_cuda() || runs_device_text_) {
      return "own (device text)";
    }
    return native_level() == NativeLevel::kV4 ? "own (AVX512)" : "own (AVX2)";
  }

  std::unique_ptr<GemmWeightPacker> make_packer(Dtype dtype, std::int64_t num_rows,
                                                std::int64_t num_columns) override {
    return make_panel_packer(device_, dtype, num_rows, num_columns);
  }

  void prepare(const GemmWeight& weight, const GemmUse& use) override {
    if (device_.is_cuda() || weight.dtype() == Dtype::kF32) {
      return;
    }
    const std::int64_t num_floats = use.max_rows * widened_stride(weight.num_columns());
    if (num_floats * std::int64_t{sizeof(float)} > widened_bytes()) {
      widened_.emplace_back(device_, Dtype::kF32, Shape{num_floats});
    }
  }

  void run(StreamRef stream, const GemmCall& call) override {
    const GemmParams params = params_of(call);
    if (!runs_device_text_ &&
        enqueue_native(stream, "gemm", gemm_traffic(params), RIGEL_NATIVE_VARIANT(gemm), params)) {
      return;
    }
    dispatch_activation(call.weight.dtype(), [&]<class T>() { launch_gemm<T>(stream, params); });
  }

 private:
  /// Off powers of two, so that the rows of a tile fall into different sets of the cache.
  static std::int64_t widened_stride(std::int64_t num_columns) {
    return (num_columns + 15) / 16 * 16 + 16;
  }

  std::int64_t widened_bytes() const { return widened_.empty() ? 0 : widened_.back().num_bytes(); }

  GemmParams params_of(const GemmCall& call) const {
    const GemmWeight& weight = call.weight;
    const bool is_bf16 = weight.dtype() == Dtype::kBf16;
    const std::int64_t stride = widened_stride(weight.num_columns());
    RIGEL_CHECK(device_.is_cuda() || !is_bf16 ||
                    call.num_rows() * stride * std::int64_t{sizeof(float)} <= widened_bytes(),
                "{} rows of depth {} were not prepared", call.num_rows(), weight.num_columns());
    return {.x = call.x.raw(),
            .weight = weight.raw(),
            .bias = call.bias.defined() ? call.bias.data<float>() : nullptr,
            .out = call.out.raw(),
            .widened = widened_.empty() ? nullptr : reinterpret_cast<float*>(widened_.back().raw()),
            .x_row_stride = call.x.stride(0),
            .out_row_stride = call.out.stride(0),
            .widened_row_stride = stride,
            .num_rows = static_cast<std::int32_t>(call.num_rows()),
            .num_columns = static_cast<std::int32_t>(weight.num_rows()),
            .depth = static_cast<std::int32_t>(weight.num_columns()),
            .output = call.output,
            .is_bf16 = is_bf16};
  }

  Device& device_;
  bool runs_device_text_;
  // x as f32 for the native variant. The last one serves; captured graphs may point to the others.
  std::vector<DeviceBuffer> widened_;
};

}  // namespace

Traffic gemm_traffic(const GemmParams& params) {
  const std::int64_t rows = params.num_rows;
  const std::int64_t columns = params.num_columns;
  const std::int64_t depth = params.depth;
  const std::int64_t element_bytes = params.is_bf16 ? 2 : 4;
  const std::int64_t out_bytes =
      rows * columns * (params.output == GemmOutput::kActivation ? element_bytes : 4);
  const std::int64_t bias_bytes = params.bias != nullptr ? columns * 4 : 0;
  const std::int64_t accumulated_bytes = params.output == GemmOutput::kAccumulate ? out_bytes : 0;
  return {.read_bytes = (columns + rows) * depth * element_bytes + bias_bytes + accumulated_bytes,
          .written_bytes = out_bytes,
          .flops = 2 * rows * columns * depth};
}

LaunchPlan gemm_plan(const GemmParams& params) {
  const int rows = tile_rows(params);
  return {.grid = dim3(
              static_cast<unsigned>((params.num_columns + kGemmTileColumns - 1) / kGemmTileColumns),
              static_cast<unsigned>((params.num_rows + rows - 1) / rows)),
          .block = dim3(kGemmBlock),
          .traffic = gemm_traffic(params),
          .programmatic = true};
}

void gemm_add_bias(StreamRef stream, const GemmParams& params) {
  const std::int64_t num_values = std::int64_t{params.num_rows} * params.num_columns;
  const std::int64_t value_bytes =
      params.output == GemmOutput::kActivation && params.is_bf16 ? 2 : 4;
  const LaunchPlan plan = {
      .grid = dim3(static_cast<unsigned>(params.num_rows),
                   static_cast<unsigned>((params.num_columns + kBiasBlock - 1) / kBiasBlock)),
      .block = dim3(kBiasBlock),
      .traffic = {.read_bytes = (num_values + params.num_columns) * 4,
                  .written_bytes = num_values * value_bytes,
                  .flops = num_values},
      .programmatic = true};
  dispatch_activation(params.is_bf16 ? Dtype::kBf16 : Dtype::kF32, [&]<class T>() {
    launch<gemm_add_bias_kernel<T, kBiasBlock>>(stream, "gemm_add_bias", plan, params);
  });
}

std::unique_ptr<GemmBackend> make_own_gemm(Device& device) {
  return std::make_unique<OwnGemm>(device);
}

}  // namespace rigel::kernels
