#pragma once

// What stands behind Gemm: one implementation for each library. Inside kernels/ only.

#include "kernels/gemm.h"

#include <memory>
#include <string>

namespace rigel::kernels {

/// One checked product with M, N, K > 0.
struct GemmCall {
  DeviceView out;
  ConstDeviceView x;
  const GemmWeight& weight;
  ConstDeviceView bias;  // undefined: none
  GemmOutput output;

  [[nodiscard]] std::int64_t num_rows() const { return x.dim(0); }
};

/// Puts the rows of one weight where the library wants them.
class GemmWeightPacker {
 public:
  virtual ~GemmWeightPacker() = default;
  virtual void add_rows(std::int64_t first_row, ConstHostView rows) = 0;
  virtual GemmWeight finish() = 0;
};

class GemmBackend {
 public:
  virtual ~GemmBackend() = default;
  [[nodiscard]] virtual std::string description() const = 0;
  /// Null where the library can't multiply this shape, or not with the promised bits: then our own code does.
  [[nodiscard]] virtual std::unique_ptr<GemmWeightPacker> make_packer(Dtype dtype,
                                                                      std::int64_t num_rows,
                                                                      std::int64_t num_columns) = 0;
  virtual void prepare(const GemmWeight& weight, const GemmUse& use) = 0;
  virtual void run(StreamRef stream, const GemmCall& call) = 0;
};

/// Our own code: serves every shape.
[[nodiscard]] std::unique_ptr<GemmBackend> make_own_gemm(Device& device);

/// The vendor's library of this build (oneDNN or cuBLASLt); null where it can't be loaded. `is_required`: it takes every
/// shape that it can multiply, whatever the bits.
[[nodiscard]] std::unique_ptr<GemmBackend> make_library_gemm(Device& device, bool is_required);

}  // namespace rigel::kernels
