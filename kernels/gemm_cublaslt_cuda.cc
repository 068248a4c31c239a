#include "kernels/cublaslt_cuda.h"
#include "kernels/gemm_backend.h"
#include "kernels/gemm_own.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/launch.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace rigel::kernels {
namespace {

// Row-major out (M, N) = x (M, K) * W (N, K)^T is, to cuBLASLt's column-major eyes, out (N, M) = W^T * x with W (K, N)
// transposed and x (K, M) as it lies: A is W, B is x.

constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
// Algorithms are ranked for this many rows, whatever will be asked for: the choice, and with it the order of every sum, is
// then the same for all row counts of a weight. A decode step's size; large prefills give some speed for it.
constexpr std::int64_t kRankedRows = 64;
constexpr int kMaxCandidates = 16;

/// The kind of product: everything but M and addresses.
struct Kind {
  std::int64_t num_columns;  // N
  std::int64_t depth;        // K
  Dtype dtype;
  bool out_is_float;
  bool accumulates;
  bool has_bias;  // in cuBLASLt's epilogue
  friend bool operator==(const Kind&, const Kind&) = default;
};

cudaDataType_t data_type_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// The descriptors of one product, on the stack.
struct Descriptors {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t weight, x, out;
};

struct Strides {
  std::int64_t x;
  std::int64_t out;
};

void check_status(const CublasLt& lt, cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    throw DeviceError(fmt::format("{} failed: {}", call, lt.status_string(status)));
  }
}

template <class Value>
void set(const CublasLt& lt, Descriptors& on, cublasLtMatmulDescAttributes_t attribute,
         const Value& value) {
  check_status(lt, lt.set_product(&on.product, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

Descriptors describe(const CublasLt& lt, const Kind& kind, std::int64_t num_rows, Strides strides,
                     const float* bias) {
  Descriptors all;
  // CUBLAS_COMPUTE_32F multiplies f32 as f32, without TF32.
  check_status(lt,
               lt.init_product(&all.product, sizeof all.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescInit");
  set(lt, all, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (kind.has_bias) {
    set(lt, all, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(lt, all, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    set(lt, all, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  const auto init = [&](cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type,
                        std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check_status(lt,
                 lt.init_layout(&layout, sizeof layout, type, static_cast<std::uint64_t>(rows),
                                static_cast<std::uint64_t>(columns), stride),
                 "cublasLtMatrixLayoutInit");
  };
  const cudaDataType_t type = data_type_of(kind.dtype);
  init(all.weight, type, kind.depth, kind.num_columns, kind.depth);
  init(all.x, type, kind.depth, num_rows, strides.x);
  init(all.out, kind.out_is_float ? CUDA_R_32F : type, kind.num_columns, num_rows, strides.out);
  return all;
}

/// The alignment that every row of `extent` elements has, at most 16 bytes.
std::uint32_t row_alignment(std::int64_t extent, std::int64_t element_bytes) {
  std::uint32_t alignment = 16;
  while (extent * element_bytes % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

cublasLtMatmulPreferenceOpaque_t preference_of(const CublasLt& lt, const Kind& kind) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_status(lt, lt.init_preference(&preference, sizeof preference),
               "cublasLtMatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_status(lt, lt.set_preference(&preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  // Partial sums of a split K are added in one order only out of place.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto element_bytes = static_cast<std::int64_t>(size_of(kind.dtype));
  const std::uint32_t in_alignment = row_alignment(kind.depth, element_bytes);
  const std::uint32_t out_alignment =
      row_alignment(kind.num_columns, kind.out_is_float ? 4 : element_bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, in_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, in_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
  return preference;
}

/// Whether the algorithm can multiply `num_rows` rows within the workspace.
bool can_multiply(const CublasLt& lt, const Kind& kind, std::int64_t num_rows,
                  const cublasLtMatmulAlgo_t& algorithm, const float* some_bias) {
  Descriptors of = describe(lt, kind, num_rows, {kind.depth, kind.num_columns}, some_bias);
  cublasLtMatmulHeuristicResult_t result = {};
  return lt.check_algorithm(lt.handle(), &of.product, &of.weight, &of.x, &of.out, &of.out,
                            &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(kWorkspaceBytes);
}

/// The best ranked algorithm that serves one row, `max_rows` and all between. `some_bias` is any device address: a bias
/// epilogue is not ranked without one.
std::optional<cublasLtMatmulAlgo_t> choose_algorithm(const CublasLt& lt, const Kind& kind,
                                                     std::int64_t max_rows,
                                                     const float* some_bias) {
  Descriptors of = describe(lt, kind, kRankedRows, {kind.depth, kind.num_columns}, some_bias);
  cublasLtMatmulPreferenceOpaque_t preference = preference_of(lt, kind);
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> candidates;
  int num_candidates = 0;
  if (lt.find_algorithms(lt.handle(), &of.product, &of.weight, &of.x, &of.out, &of.out, &preference,
                         kMaxCandidates, candidates.data(),
                         &num_candidates) != CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  for (int i = 0; i < num_candidates; ++i) {
    const cublasLtMatmulHeuristicResult_t& candidate = candidates[static_cast<std::size_t>(i)];
    if (candidate.state == CUBLAS_STATUS_SUCCESS &&
        can_multiply(lt, kind, 1, candidate.algo, some_bias) &&
        can_multiply(lt, kind, max_rows, candidate.algo, some_bias)) {
      return candidate.algo;
    }
  }
  return std::nullopt;
}

/// Copies rows as they are.
class RowPacker final : public GemmWeightPacker {
 public:
  RowPacker(Device& device, Dtype dtype, std::int64_t num_rows, std::int64_t num_columns)
      : dtype_(dtype),
        num_rows_(num_rows),
        num_columns_(num_columns),
        buffer_(device, dtype, {num_rows, num_columns}),
        stream_(device) {
    fill_bytes(stream_, buffer_.view(dtype, {num_rows, num_columns}), 0);
  }

  void add_rows(std::int64_t first_row, ConstHostView rows) override {
    copy(stream_, buffer_.view(dtype_, {num_rows_, num_columns_}).slice(0, first_row, rows.dim(0)),
         rows);
    stream_.synchronize();  // `rows` may be pinned, and belongs to the caller again
  }

  GemmWeight finish() override {
    stream_.synchronize();
    return GemmWeight(dtype_, num_rows_, num_columns_, GemmLayout::kRows, std::move(buffer_));
  }

 private:
  Dtype dtype_;
  std::int64_t num_rows_;
  std::int64_t num_columns_;
  DeviceBuffer buffer_;
  Stream stream_;
};

struct Prepared {
  Kind kind;
  std::int64_t max_rows;
  cublasLtMatmulAlgo_t algorithm;
};

class CublasLtGemm final : public GemmBackend {
 public:
  CublasLtGemm(Device& device, std::unique_ptr<CublasLt> lt)
      : device_(device), lt_(std::move(lt)), workspace_(device, kWorkspaceBytes) {}

  std::string description() const override { return fmt::format("cuBLASLt {}", lt_->version()); }

  std::unique_ptr<GemmWeightPacker> make_packer(Dtype dtype, std::int64_t num_rows,
                                                std::int64_t num_columns) override {
    const Kind kind = {.num_columns = num_rows,
                       .depth = num_columns,
                       .dtype = dtype,
                       .out_is_float = true,
                       .accumulates = false,
                       .has_bias = false};
    if (!choose_algorithm(*lt_, kind, kRankedRows, nullptr)) {
      return nullptr;
    }
    return std::make_unique<RowPacker>(device_, dtype, num_rows, num_columns);
  }

  void prepare(const GemmWeight& weight, const GemmUse& use) override {
    Kind kind = kind_of(weight, use.output, use.has_bias);
    if (!prepare_kind(kind, use.max_rows) && kind.has_bias) {
      kind.has_bias = false;  // no such epilogue: our own kernel adds the bias
      prepare_kind(kind, use.max_rows);
    }
    if (find(kind, use.max_rows) == nullptr) {
      throw std::runtime_error(fmt::format(
          "cuBLASLt has no algorithm for {} rows by a ({}, {}) {} weight; choose GEMM "
          "library own",
          use.max_rows, weight.num_rows(), weight.num_columns(), name_of(weight.dtype())));
    }
    if (use.has_bias && !kind.has_bias) {
      reserve_sums(use.max_rows * weight.num_rows());
      Kind plain = kind_of(weight, GemmOutput::kFloat, false);
      RIGEL_CHECK(find(plain, use.max_rows) != nullptr || prepare_kind(plain, use.max_rows),
                  "cuBLASLt has no f32 product for {} rows", use.max_rows);
    }
  }

  void run(StreamRef stream, const GemmCall& call) override {
    const Kind kind = kind_of(call.weight, call.output, call.bias.defined());
    const std::int64_t rows = call.num_rows();
    if (const Prepared* prepared = find(kind, rows)) {
      multiply(stream, *prepared, call, call.out.raw(), call.out.stride(0));
      return;
    }
    const Prepared* plain = find(kind_of(call.weight, GemmOutput::kFloat, false), rows);
    RIGEL_CHECK(call.bias.defined() && plain != nullptr && !sums_.empty(),
                "a product of {} rows with a ({}, {}) weight was not prepared", rows,
                call.weight.num_rows(), call.weight.num_columns());
    multiply(stream, *plain, call, sums_.back().raw(), call.weight.num_rows());
    add_bias(stream, call);
  }

 private:
  static Kind kind_of(const GemmWeight& weight, GemmOutput output, bool has_bias) {
    return {.num_columns = weight.num_rows(),
            .depth = weight.num_columns(),
            .dtype = weight.dtype(),
            .out_is_float = output != GemmOutput::kActivation || weight.dtype() == Dtype::kF32,
            .accumulates = output == GemmOutput::kAccumulate,
            .has_bias = has_bias};
  }

  const Prepared* find(const Kind& kind, std::int64_t num_rows) const {
    for (const Prepared& prepared : prepared_) {
      if (prepared.kind == kind && prepared.max_rows >= num_rows) {
        return &prepared;
      }
    }
    return nullptr;
  }

  bool prepare_kind(const Kind& kind, std::int64_t max_rows) {
    // cuBLASLt rounds a bias to the output's type; ours stays f32 and is added before rounding.
    if (kind.has_bias && !kind.out_is_float) {
      return false;
    }
    if (find(kind, max_rows) != nullptr) {
      return true;
    }
    const auto algorithm =
        choose_algorithm(*lt_, kind, max_rows, workspace_.view(Dtype::kF32, {1}).data<float>());
    if (algorithm) {
      std::erase_if(prepared_, [&](const Prepared& old) { return old.kind == kind; });
      prepared_.push_back({kind, max_rows, *algorithm});
    }
    return algorithm.has_value();
  }

  void reserve_sums(std::int64_t num_floats) {
    if (sums_.empty() || sums_.back().num_bytes() < num_floats * 4) {
      sums_.emplace_back(device_, Dtype::kF32, Shape{num_floats});  // graphs point to the others
    }
  }

  void multiply(StreamRef stream, const Prepared& prepared, const GemmCall& call, void* out,
                std::int64_t out_stride) {
    const Kind& kind = prepared.kind;
    const std::int64_t rows = call.num_rows();
    // A row stride of one row is never used, but it must pass as a leading dimension.
    const std::int64_t x_stride = std::max(call.x.stride(0), kind.depth);
    check_alignment(kind, call, out, out_stride);
    const float* bias = kind.has_bias ? call.bias.data<float>() : nullptr;
    Descriptors of =
        describe(*lt_, kind, rows, {x_stride, std::max(out_stride, kind.num_columns)}, bias);
    const float one = 1.0F;
    const float beta = kind.accumulates ? 1.0F : 0.0F;
    detail::note_launch(stream, "gemm", gemm_traffic(params_of(call)));
    check_status(
        *lt_,
        lt_->matmul(lt_->handle(), &of.product, &one, call.weight.raw(), &of.weight, call.x.raw(),
                    &of.x, &beta, out, &of.out, out, &of.out, &prepared.algorithm, workspace_.raw(),
                    static_cast<std::size_t>(kWorkspaceBytes), stream.state().stream),
        "cublasLtMatmul");
  }

  /// The algorithm was chosen for rows aligned as those of dense matrices are.
  static void check_alignment(const Kind& kind, const GemmCall& call, const void* out,
                              std::int64_t out_stride) {
    const auto is_aligned = [rows = call.num_rows()](const void* address, std::int64_t stride,
                                                     std::int64_t extent, std::int64_t bytes) {
      const std::uint32_t alignment = row_alignment(extent, bytes);
      return reinterpret_cast<std::uintptr_t>(address) % alignment == 0 &&
             (rows == 1 || stride * bytes % alignment == 0);
    };
    const auto in_bytes = static_cast<std::int64_t>(size_of(kind.dtype));
    RIGEL_CHECK(is_aligned(call.x.raw(), call.x.stride(0), kind.depth, in_bytes) &&
                    is_aligned(out, out_stride, kind.num_columns, kind.out_is_float ? 4 : in_bytes),
                "rows of x and out must be aligned as those of dense ({}, {}) and ({}, {})",
                call.num_rows(), kind.depth, call.num_rows(), kind.num_columns);
  }

  static GemmParams params_of(const GemmCall& call) {
    return {.x = call.x.raw(),
            .weight = call.weight.raw(),
            .bias = call.bias.defined() ? call.bias.data<float>() : nullptr,
            .out = call.out.raw(),
            .x_row_stride = call.x.stride(0),
            .out_row_stride = call.out.stride(0),
            .num_rows = static_cast<std::int32_t>(call.num_rows()),
            .num_columns = static_cast<std::int32_t>(call.weight.num_rows()),
            .depth = static_cast<std::int32_t>(call.weight.num_columns()),
            .output = call.output,
            .is_bf16 = call.weight.dtype() == Dtype::kBf16};
  }

  void add_bias(StreamRef stream, const GemmCall& call) {
    GemmParams params = params_of(call);
    params.x = sums_.back().raw();
    params.x_row_stride = params.num_columns;
    gemm_add_bias(stream, params);
  }

  Device& device_;
  std::unique_ptr<CublasLt> lt_;
  DeviceBuffer workspace_;
  std::vector<Prepared> prepared_;
  std::vector<DeviceBuffer> sums_;  // f32 products that still lack their bias; the last one serves
};

}  // namespace

std::unique_ptr<GemmBackend> make_library_gemm(Device& device, bool) {
  auto lt = CublasLt::load();
  return lt == nullptr ? nullptr : std::make_unique<CublasLtGemm>(device, std::move(lt));
}

}  // namespace rigel::kernels
