#include "kernels/gemm_backend.h"
#include "kernels/gemm_onednn.h"
#include "kernels/gemm_own.h"
#include "simt/pool.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/launch.h"

#include <dnnl.hpp>
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace rigel::kernels {
namespace {

using dnnl::matmul;
using dnnl::memory;

constexpr std::array<std::int64_t, 20> kRowCounts = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                     11, 12, 13, 14, 15, 16, 24, 32, 48, 64};
// The layout of a packed weight does not depend on the rows that it is asked for with.
constexpr std::int64_t kLayoutRows = 64;
// Columns of a slice are whole blocks of every layout that oneDNN chooses.
constexpr std::int64_t kSliceColumns = 64;

memory::data_type data_type_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

/// What a primitive multiplies; the pool gives it rows or a slice of the columns.
struct Shape2 {
  std::int64_t num_rows;     // M
  std::int64_t num_columns;  // N
  std::int64_t depth;        // K
};

/// The kind of product: everything of a primitive but its shape.
struct Kind {
  Dtype dtype;
  GemmOutput output;
  bool has_bias;
  friend bool operator==(const Kind&, const Kind&) = default;
};

matmul::primitive_desc describe(const dnnl::engine& engine, const Kind& kind, const Shape2& shape,
                                const memory::desc& weights) {
  const auto type = data_type_of(kind.dtype);
  const auto out_type = kind.output == GemmOutput::kActivation ? type : memory::data_type::f32;
  const memory::desc x({shape.num_rows, shape.depth}, type, memory::format_tag::ab);
  const memory::desc out({shape.num_rows, shape.num_columns}, out_type, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (kind.output == GemmOutput::kAccumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0F);
    attributes.set_post_ops(operations);
  }
  if (!kind.has_bias) {
    return {matmul::desc(x, weights, out), attributes, engine};
  }
  const memory::desc bias({1, shape.num_columns}, memory::data_type::f32, memory::format_tag::ab);
  return {matmul::desc(x, weights, bias, out), attributes, engine};
}

memory::desc any_layout(Dtype dtype, std::int64_t num_columns, std::int64_t depth) {
  return {{depth, num_columns}, data_type_of(dtype), memory::format_tag::any};
}

/// The layout a weight is packed in, and the implementation that asked for it.
struct Packing {
  memory::desc weights;
  std::string implementation;
};

Packing packing_of(const dnnl::engine& engine, Dtype dtype, std::int64_t num_columns,
                   std::int64_t depth) {
  const Kind kind = {.dtype = dtype, .output = GemmOutput::kFloat, .has_bias = false};
  const auto description = describe(engine, kind, {kLayoutRows, num_columns, depth},
                                    any_layout(dtype, num_columns, depth));
  return {description.weights_desc(), description.impl_info_str()};
}

/// Where column `first` of a packed weight begins, in elements, if the columns from there on lie exactly as a slice packed
/// alone would; -1 if not.
std::int64_t slice_offset(const memory::desc& whole, const memory::desc& slice,
                          std::int64_t first) {
  const dnnl_memory_desc_t& a = whole.data;
  const dnnl_memory_desc_t& b = slice.data;
  if (a.format_kind != dnnl_blocked || b.format_kind != dnnl_blocked) {
    return -1;
  }
  const dnnl_blocking_desc_t& layout = a.format_desc.blocking;
  const dnnl_blocking_desc_t& other = b.format_desc.blocking;
  bool same = layout.inner_nblks == other.inner_nblks && a.padded_dims[0] == b.padded_dims[0] &&
              layout.strides[0] == other.strides[0] && layout.strides[1] == other.strides[1];
  std::int64_t block = 1;
  for (int i = 0; same && i < layout.inner_nblks; ++i) {
    same =
        layout.inner_blks[i] == other.inner_blks[i] && layout.inner_idxs[i] == other.inner_idxs[i];
    block *= layout.inner_idxs[i] == 1 ? layout.inner_blks[i] : 1;
  }
  return same && first % block == 0 ? first / block * layout.strides[1] : -1;
}

/// One primitive and the descriptions of what it is given.
struct Primitive {
  matmul::primitive_desc description;
  matmul primitive;
  std::int64_t first_column = 0;
  std::int64_t weight_offset = 0;  // elements

  explicit Primitive(matmul::primitive_desc from)
      : description(std::move(from)), primitive(description) {}
};

/// All primitives of one weight shape and kind.
struct Product {
  Shape2 shape;  // num_rows: the most that are prepared
  Kind kind;
  std::vector<std::pair<std::int64_t, Primitive>> by_rows;  // ascending
  std::vector<Primitive> slices;  // one row, columns shared out; may be empty

  const Primitive& of_rows(std::int64_t num_rows) const {
    return std::find_if(by_rows.begin(), by_rows.end(),
                        [&](const auto& entry) { return entry.first == num_rows; })
        ->second;
  }
};

/// One enqueued product.
struct Call {
  const Product* product;
  const dnnl::engine* engine;
  dnnl::stream* streams;  // one a thread
  std::byte* scratch;     // scratch_bytes a thread
  std::int64_t scratch_bytes;
  const std::byte* x;
  const std::byte* weight;
  const float* bias;
  std::byte* out;
  std::int64_t x_row_bytes;
  std::int64_t out_row_bytes;
  std::int64_t num_rows;
  int num_threads;
  bool is_dense;  // rows of x and out lie one after another
};

// The memory objects are made here, on the device's threads: the step path's thread allocates nothing.
void execute(const Call& call, const Primitive& primitive, std::int64_t row, int thread) {
  // oneDNN's own threads stay out of it: each of ours runs its share with a team of one.
  omp_set_num_threads(1);
  const auto bind = [&](const memory::desc& desc, const void* address) {
    return memory(desc, *call.engine, const_cast<void*>(address));
  };
  const auto element_bytes = static_cast<std::int64_t>(size_of(call.product->kind.dtype));
  const std::int64_t out_bytes =
      call.product->kind.output == GemmOutput::kActivation ? element_bytes : 4;
  const matmul::primitive_desc& desc = primitive.description;
  const memory x = bind(desc.src_desc(), call.x + row * call.x_row_bytes);
  const memory weights =
      bind(desc.weights_desc(), call.weight + primitive.weight_offset * element_bytes);
  const memory out = bind(desc.dst_desc(),
                          call.out + row * call.out_row_bytes + primitive.first_column * out_bytes);
  const memory scratch = bind(desc.scratchpad_desc(), call.scratch + thread * call.scratch_bytes);
  std::array<dnnl_exec_arg_t, 5> arguments = {{{DNNL_ARG_SRC, x.get()},
                                               {DNNL_ARG_WEIGHTS, weights.get()},
                                               {DNNL_ARG_DST, out.get()},
                                               {DNNL_ARG_SCRATCHPAD, scratch.get()},
                                               {}}};
  memory bias;
  int num_arguments = 4;
  if (call.product->kind.has_bias) {
    bias = bind(memory::desc({1, desc.dst_desc().dims()[1]}, memory::data_type::f32,
                             memory::format_tag::ab),
                call.bias + primitive.first_column);
    arguments[4] = {DNNL_ARG_BIAS, bias.get()};
    num_arguments = 5;
  }
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive.primitive.get(), call.streams[thread].get(), num_arguments, arguments.data());
  // Shapes, types and addresses were checked when the primitive was made: only a bug gets here.
  if (status != dnnl_success) {
    std::abort();
  }
}

/// Rows [row, end) as a sum of prepared row counts.
void execute_rows(const Call& call, std::int64_t row, std::int64_t end, int thread) {
  while (row < end) {
    // A primitive wants its rows one after another: others go one by one.
    const std::int64_t count =
        call.is_dense ? onednn_next_rows(end - row, call.product->shape.num_rows) : 1;
    execute(call, call.product->of_rows(count), row, thread);
    row += count;
  }
}

/// One row: the threads share the columns. Several: they share the rows. The bits are the same.
void multiply(simt::Pool& pool, const Call& call) {
  const Product& product = *call.product;
  if (call.num_rows == 1 && !product.slices.empty()) {
    pool.parallel_for(static_cast<int>(product.slices.size()), [&](int slice) {
      execute(call, product.slices[static_cast<std::size_t>(slice)], 0, slice);
    });
    return;
  }
  const int shares = static_cast<int>(std::min<std::int64_t>(call.num_threads, call.num_rows));
  pool.parallel_for(shares, [&](int share) {
    execute_rows(call, share * call.num_rows / shares, (share + 1) * call.num_rows / shares, share);
  });
}

class OneDnnPacker final : public GemmWeightPacker {
 public:
  OneDnnPacker(Device& device, const dnnl::engine& engine, Dtype dtype, std::int64_t num_rows,
               std::int64_t num_columns, memory::desc weights)
      : device_(device),
        engine_(engine),
        dtype_(dtype),
        num_rows_(num_rows),
        num_columns_(num_columns),
        weights_(std::move(weights)),
        rows_(static_cast<std::size_t>(num_rows * num_columns) * size_of(dtype)) {}

  void add_rows(std::int64_t first_row, ConstHostView rows) override {
    if (rows.num_bytes() == 0) {
      return;
    }
    const std::int64_t row_bytes = num_columns_ * static_cast<std::int64_t>(size_of(dtype_));
    std::memcpy(rows_.data() + first_row * row_bytes, rows.raw(),
                static_cast<std::size_t>(rows.num_bytes()));
  }

  GemmWeight finish() override {
    DeviceBuffer buffer(device_, static_cast<std::int64_t>(weights_.get_size()));
    // Rows of W (N, K) are columns of oneDNN's weights (K, N).
    memory plain({{num_columns_, num_rows_}, data_type_of(dtype_), memory::format_tag::ba}, engine_,
                 rows_.data());
    memory packed(weights_, engine_, buffer.raw());
    dnnl::stream stream(engine_);
    dnnl::reorder(plain, packed).execute(stream, plain, packed);
    stream.wait();
    return GemmWeight(dtype_, num_rows_, num_columns_, GemmLayout::kOneDnn, std::move(buffer));
  }

 private:
  Device& device_;
  dnnl::engine engine_;
  Dtype dtype_;
  std::int64_t num_rows_;
  std::int64_t num_columns_;
  memory::desc weights_;
  std::vector<std::byte> rows_;
};

class OneDnnGemm final : public GemmBackend {
 public:
  OneDnnGemm(Device& device, bool is_required)
      : device_(device),
        is_required_(is_required),
        num_threads_(device.options().num_threads),
        engine_(dnnl::engine::kind::cpu, 0) {
    for (int thread = 0; thread < num_threads_; ++thread) {
      streams_.emplace_back(engine_);
    }
  }

  std::string description() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }

  std::unique_ptr<GemmWeightPacker> make_packer(Dtype dtype, std::int64_t num_rows,
                                                std::int64_t num_columns) override {
    omp_set_num_threads(1);  // primitives are made for the team that they run with
    try {
      Packing packing = packing_of(engine_, dtype, num_rows, num_columns);
      if (!is_required_ && !onednn_keeps_bits(packing.implementation)) {
        return nullptr;
      }
      return std::make_unique<OneDnnPacker>(device_, engine_, dtype, num_rows, num_columns,
                                            std::move(packing.weights));
    } catch (const dnnl::error&) {
      return nullptr;  // how oneDNN says that it has no implementation: bf16 without AVX512
    }
  }

  void prepare(const GemmWeight& weight, const GemmUse& use) override {
    omp_set_num_threads(1);
    const Kind kind = {.dtype = weight.dtype(), .output = use.output, .has_bias = use.has_bias};
    if (const Product* known = find(weight, kind);
        known != nullptr && known->shape.num_rows >= use.max_rows) {
      return;
    }
    auto product = std::make_unique<Product>(
        Product{{use.max_rows, weight.num_rows(), weight.num_columns()}, kind, {}, {}});
    const memory::desc weights =
        packing_of(engine_, weight.dtype(), weight.num_rows(), weight.num_columns()).weights;
    for (const std::int64_t rows : kRowCounts) {
      if (rows <= use.max_rows) {
        product->by_rows.emplace_back(
            rows, make_primitive(kind, {rows, weight.num_rows(), weight.num_columns()}, weights));
      }
    }
    make_slices(*product, weights);
    reserve_scratch(*product);
    // An enqueued call or a captured graph may point to the smaller product that this one supersedes: both stay.
    products_.insert(products_.begin(), std::move(product));
  }

  void run(StreamRef stream, const GemmCall& call) override {
    const GemmWeight& weight = call.weight;
    const Kind kind = {
        .dtype = weight.dtype(), .output = call.output, .has_bias = call.bias.defined()};
    const Product* product = find(weight, kind);
    RIGEL_CHECK(product != nullptr && call.num_rows() <= product->shape.num_rows,
                "a product of {} rows with a ({}, {}) weight was not prepared", call.num_rows(),
                weight.num_rows(), weight.num_columns());
    const auto row_bytes = [](const auto& view) {
      return view.stride(0) * static_cast<std::int64_t>(size_of(view.dtype()));
    };
    const Call enqueued = {
        .product = product,
        .engine = &engine_,
        .streams = streams_.data(),
        .scratch = scratch_.back().raw(),
        .scratch_bytes = scratch_bytes_,
        .x = call.x.raw(),
        .weight = weight.raw(),
        .bias = call.bias.defined() ? call.bias.data<float>() : nullptr,
        .out = call.out.raw(),
        .x_row_bytes = row_bytes(call.x),
        .out_row_bytes = row_bytes(call.out),
        .num_rows = call.num_rows(),
        .num_threads = num_threads_,
        .is_dense = call.x.is_contiguous() && call.out.is_contiguous(),
    };
    const GemmParams sizes = {.num_rows = static_cast<std::int32_t>(call.num_rows()),
                              .num_columns = static_cast<std::int32_t>(weight.num_rows()),
                              .depth = static_cast<std::int32_t>(weight.num_columns()),
                              .output = call.output,
                              .is_bf16 = weight.dtype() == Dtype::kBf16};
    const bool is_enqueued =
        enqueue_native(stream, "gemm", gemm_traffic(sizes), &multiply, enqueued);
    RIGEL_CHECK(is_enqueued, "oneDNN multiplies on the virtual device only");
  }

 private:
  const Product* find(const GemmWeight& weight, const Kind& kind) const {
    for (const auto& product : products_) {
      if (product->shape.num_columns == weight.num_rows() &&
          product->shape.depth == weight.num_columns() && product->kind == kind) {
        return product.get();
      }
    }
    return nullptr;
  }

  Primitive make_primitive(const Kind& kind, const Shape2& shape, const memory::desc& weights) {
    Primitive primitive(describe(engine_, kind, shape, weights));
    const std::string name = primitive.description.impl_info_str();
    if (!is_required_ && !onednn_keeps_bits(name)) {
      throw std::runtime_error(fmt::format(
          "oneDNN multiplies {} rows by ({}, {}) with '{}', whose bits depend on the rows; choose "
          "GEMM library own",
          shape.num_rows, shape.num_columns, shape.depth, name));
    }
    return primitive;
  }

  /// Shares the columns of one row among the threads, if slices lie in the packed weight as if packed alone.
  void make_slices(Product& product, const memory::desc& weights) {
    const std::int64_t num_columns = product.shape.num_columns;
    const std::int64_t blocks = (num_columns + kSliceColumns - 1) / kSliceColumns;
    const std::int64_t num_slices = std::min<std::int64_t>(num_threads_, blocks);
    for (std::int64_t slice = 0; num_slices > 1 && slice < num_slices; ++slice) {
      const std::int64_t first = slice * blocks / num_slices * kSliceColumns;
      const std::int64_t end =
          std::min((slice + 1) * blocks / num_slices * kSliceColumns, num_columns);
      const Shape2 shape = {1, end - first, product.shape.depth};
      const memory::desc alone =
          packing_of(engine_, product.kind.dtype, shape.num_columns, shape.depth).weights;
      const std::int64_t offset = slice_offset(weights, alone, first);
      if (offset < 0) {
        product.slices.clear();
        return;
      }
      Primitive primitive = make_primitive(product.kind, shape, alone);
      primitive.first_column = first;
      primitive.weight_offset = offset;
      product.slices.push_back(std::move(primitive));
    }
  }

  void reserve_scratch(const Product& product) {
    std::int64_t needed = 64;
    const auto count = [&](const Primitive& primitive) {
      const auto bytes =
          static_cast<std::int64_t>(primitive.description.scratchpad_desc().get_size());
      needed = std::max(needed, (bytes + 63) / 64 * 64);
    };
    for (const auto& [rows, primitive] : product.by_rows) {
      count(primitive);
    }
    std::for_each(product.slices.begin(), product.slices.end(), count);
    if (needed > scratch_bytes_) {
      // Captured graphs point to the earlier ones.
      scratch_.emplace_back(device_, needed * num_threads_);
      scratch_bytes_ = needed;
    }
  }

  Device& device_;
  bool is_required_;
  int num_threads_;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;
  std::vector<std::unique_ptr<Product>> products_;
  std::vector<DeviceBuffer> scratch_;  // the last one serves
  std::int64_t scratch_bytes_ = 0;     // a thread
};

}  // namespace

bool onednn_keeps_bits(std::string_view implementation) {
  return implementation.starts_with("brg:avx512_core");
}

std::span<const std::int64_t> onednn_row_counts() {
  return kRowCounts;
}

std::int64_t onednn_next_rows(std::int64_t num_rows, std::int64_t max_rows) {
  const std::int64_t most = std::min(num_rows, max_rows);
  return *std::prev(std::upper_bound(kRowCounts.begin(), kRowCounts.end(), most));
}

std::unique_ptr<GemmBackend> make_library_gemm(Device& device, bool is_required) {
  return std::make_unique<OneDnnGemm>(device, is_required);
}

}  // namespace rigel::kernels
