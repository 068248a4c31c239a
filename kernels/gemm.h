#pragma once

// Matrix products behind one header: out (M, N) = x (M, K) * W (N, K)^T + bias (N), summed in f32.
//
//   Gemm gemm(device, {});                                            // chooses the code that multiplies on this machine
//   GemmWeightBuilder builder(gemm, Dtype::kBf16, 1536, 576);         // fused matrices come a piece at a time
//   builder.add_rows(0, gate);
//   builder.add_rows(768, up);
//   const GemmWeight gate_up = builder.finish();
//   gemm.prepare(gate_up, {.max_rows = 512});                         // at load: algorithms, workspaces
//   gemm.run(stream, out, x, gate_up, {}, GemmOutput::kActivation);   // in a step: enqueues, nothing else

#include "kernels/gemm_params.h"
#include "kernels/gemm_weight.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>
#include <memory>
#include <string>

namespace rigel {
class Device;
}

namespace rigel::kernels {

class GemmBackend;

/// Whose code multiplies.
enum class GemmLibrary : std::uint8_t {
  kAuto,  ///< the vendor's library where it keeps the promise on bits, else our own
  kOwn,  ///< our own kernel (CUDA) or native loop (CPU): one reduction order for any number of rows, everywhere
  kOneDnn,    ///< CPU; with kAuto only where its kernels are `brg:avx512_core...`
  kCublasLt,  ///< CUDA; loaded at run time
};

struct GemmOptions {
  GemmLibrary library = GemmLibrary::kAuto;
};

/// How a weight will be used; several uses of one weight are prepared one after another.
struct GemmUse {
  std::int64_t max_rows = 1;
  GemmOutput output = GemmOutput::kActivation;
  bool has_bias = false;
};

/// The products of one stream of work: algorithms, primitives and workspaces, all chosen in `prepare`.
///
/// Same bits: a row of the output depends on that row of x alone, not on the number of rows or the place among them.
/// Thread: one at a time; products of one Gemm share its workspaces, so they must be ordered by their streams.
class Gemm {
 public:
  /// Throws std::invalid_argument when `options` asks for a library that this build or machine lacks.
  Gemm(Device& device, const GemmOptions& options);
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  /// Chooses algorithms and sizes workspaces for products of at most `use.max_rows` rows. Allocates; not in a capture.
  void prepare(const GemmWeight& weight, const GemmUse& use);

  /// Enqueues out = x * weight^T + bias, or out += of it.
  ///   out (M, N) T or f32    x (M, K) T    bias (N) f32 or undefined      T: the weight's dtype, bf16 or f32
  /// Pre: prepared for this output mode, for a bias if one is given, and for M rows; rows of x and out are contiguous, their
  /// strides free; out aliases nothing. M = 0 does nothing. No allocation, capture-safe. Errors: a mismatch is a bug (check).
  /// Cost: reads N·K·T of weights; on the CPU near memory bandwidth for one row and near the FMA peak for many.
  void run(StreamRef stream, DeviceView out, ConstDeviceView x, const GemmWeight& weight,
           ConstDeviceView bias, GemmOutput output);

  /// For logs: "own (AVX2)", "oneDNN 2.6.3, own (AVX512)", "cuBLASLt 130100, own (device text)".
  [[nodiscard]] std::string description() const;

 private:
  friend class GemmWeightBuilder;
  [[nodiscard]] GemmBackend& backend_of(const GemmWeight& weight) const;

  std::unique_ptr<GemmBackend> own_;
  std::unique_ptr<GemmBackend> library_;  // null: our own code multiplies everything
};

}  // namespace rigel::kernels
