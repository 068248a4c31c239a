#include "kernels/gemm.h"

#include "kernels/gemm_backend.h"
#include "kernels/gemm_trial.h"
#include "tensor/device.h"

#include <fmt/core.h>

#include <stdexcept>

namespace rigel::kernels {
namespace {

/// The library that `options` ask for; null for our own code alone.
std::unique_ptr<GemmBackend> make_library(Device& device, GemmLibrary library) {
  if (library == GemmLibrary::kOwn) {
    return nullptr;
  }
  const GemmLibrary vendor = device.is_cuda() ? GemmLibrary::kCublasLt : GemmLibrary::kOneDnn;
  if (library == GemmLibrary::kAuto) {
    return make_library_gemm(device, /*is_required=*/false);
  }
  const char* name = library == GemmLibrary::kCublasLt ? "cuBLASLt" : "oneDNN";
  if (library != vendor) {
    throw std::invalid_argument(fmt::format(
        "GEMM library {} does not run on device '{}'; choose auto or own", name, device.name()));
  }
  auto backend = make_library_gemm(device, /*is_required=*/true);
  if (backend == nullptr) {
    throw std::invalid_argument(
        fmt::format("GEMM library {} could not be loaded; choose auto or own", name));
  }
  return backend;
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
    : own_(make_own_gemm(device)), library_(make_library(device, options.library)) {
  // Not on CUDA, whose promise is weaker and whose algorithms are chosen to keep it.
  const bool is_tried = options.library == GemmLibrary::kAuto && !device.is_cuda();
  if (is_tried && library_ != nullptr && !keeps_bits(device, *library_, *own_)) {
    library_ = nullptr;
  }
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

GemmBackend& Gemm::backend_of(const GemmWeight& weight) const {
  const bool is_own = weight.layout() == GemmLayout::kPanels;
  RIGEL_CHECK(is_own || library_ != nullptr,
              "the weight was packed for a GEMM library, this Gemm is {}", description());
  return is_own ? *own_ : *library_;
}

void Gemm::prepare(const GemmWeight& weight, const GemmUse& use) {
  RIGEL_CHECK(use.max_rows > 0, "max_rows must be positive, got {}", use.max_rows);
  backend_of(weight).prepare(weight, use);
}

void Gemm::run(StreamRef stream, DeviceView out, ConstDeviceView x, const GemmWeight& weight,
               ConstDeviceView bias, GemmOutput output) {
  const GemmCall call = {.out = out, .x = x, .weight = weight, .bias = bias, .output = output};
  check_call(call);
  if (call.num_rows() > 0) {
    backend_of(weight).run(stream, call);
  }
}

std::string Gemm::description() const {
  return library_ == nullptr ? own_->description()
                             : fmt::format("{}, {}", library_->description(), own_->description());
}

}  // namespace rigel::kernels
