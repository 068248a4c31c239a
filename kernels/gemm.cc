#include "kernels/gemm.h"

#include "kernels/gemm_backend.h"
#include "tensor/device.h"

#include <fmt/core.h>

#include <stdexcept>

namespace rigel::kernels {
namespace {

std::unique_ptr<GemmBackend> make_backend(Device& device, GemmLibrary library) {
  if (library == GemmLibrary::kOwn) {
    return make_own_gemm(device);
  }
  const GemmLibrary vendor = device.is_cuda() ? GemmLibrary::kCublasLt : GemmLibrary::kOneDnn;
  const char* name = library == GemmLibrary::kCublasLt ? "cuBLASLt" : "oneDNN";
  if (library != GemmLibrary::kAuto && library != vendor) {
    throw std::invalid_argument(fmt::format(
        "GEMM library {} does not run on device '{}'; choose auto or own", name, device.name()));
  }
  if (auto backend = make_library_gemm(device, /*required=*/library == vendor)) {
    return backend;
  }
  if (library == vendor) {
    throw std::invalid_argument(
        fmt::format("GEMM library {} could not be loaded; choose auto or own", name));
  }
  return make_own_gemm(device);
}

Dtype output_dtype(const GemmCall& call) {
  return call.output == GemmOutput::kActivation ? call.weight.dtype() : Dtype::kF32;
}

void check_call(const GemmCall& call) {
  const GemmWeight& weight = call.weight;
  RIGEL_CHECK(call.x.rank() == 2 && call.x.dim(1) == weight.num_columns() &&
                  call.x.dtype() == weight.dtype() && call.x.stride(1) == 1,
              "x must be (M, {}) {} with contiguous rows, got {} {}", weight.num_columns(),
              name_of(weight.dtype()), to_string(call.x.shape()), name_of(call.x.dtype()));
  RIGEL_CHECK(call.out.rank() == 2 && call.out.dim(0) == call.x.dim(0) &&
                  call.out.dim(1) == weight.num_rows() && call.out.dtype() == output_dtype(call) &&
                  call.out.stride(1) == 1,
              "out must be ({}, {}) {} with contiguous rows, got {} {}", call.x.dim(0),
              weight.num_rows(), name_of(output_dtype(call)), to_string(call.out.shape()),
              name_of(call.out.dtype()));
  RIGEL_CHECK(
      !call.bias.defined() || (call.bias.dtype() == Dtype::kF32 && call.bias.is_contiguous() &&
                               call.bias.num_elements() == weight.num_rows()),
      "bias must be ({}) float32, got {} {}", weight.num_rows(), to_string(call.bias.shape()),
      name_of(call.bias.dtype()));
}

}  // namespace

Gemm::Gemm(Device& device, const GemmOptions& options)
    : backend_(make_backend(device, options.library)) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

void Gemm::prepare(const GemmWeight& weight, const GemmUse& use) {
  RIGEL_CHECK(weight.layout() == backend_->layout(),
              "the weight was built for another GEMM library than {}", backend_->description());
  RIGEL_CHECK(use.max_rows > 0, "max_rows must be positive, got {}", use.max_rows);
  backend_->prepare(weight, use);
}

void Gemm::run(StreamRef stream, DeviceView out, ConstDeviceView x, const GemmWeight& weight,
               ConstDeviceView bias, GemmOutput output) {
  const GemmCall call = {.out = out, .x = x, .weight = weight, .bias = bias, .output = output};
  check_call(call);
  if (call.num_rows() > 0) {
    backend_->run(stream, call);
  }
}

std::string Gemm::description() const {
  return backend_->description();
}

}  // namespace rigel::kernels
