#include "kernels/cublaslt_cuda.h"

#include <dlfcn.h>

namespace rigel::kernels {
namespace {

/// Sets `function` to the symbol `name`; false where the library has none.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<CublasLt> CublasLt::load() {
  // The version of the header and no other: it lays out the opaque descriptors.
  void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return nullptr;
  }
  std::unique_ptr<CublasLt> lt(new CublasLt(library));
  const bool is_complete =
      find(library, "cublasLtCreate", lt->create_) &&
      find(library, "cublasLtDestroy", lt->destroy_) &&
      find(library, "cublasLtGetVersion", lt->version) &&
      find(library, "cublasLtGetStatusString", lt->status_string) &&
      find(library, "cublasLtMatmul", lt->matmul) &&
      find(library, "cublasLtMatmulAlgoGetHeuristic", lt->find_algorithms) &&
      find(library, "cublasLtMatmulAlgoCheck", lt->check_algorithm) &&
      find(library, "cublasLtMatmulDescInit_internal", lt->init_product) &&
      find(library, "cublasLtMatmulDescSetAttribute", lt->set_product) &&
      find(library, "cublasLtMatrixLayoutInit_internal", lt->init_layout) &&
      find(library, "cublasLtMatmulPreferenceInit_internal", lt->init_preference) &&
      find(library, "cublasLtMatmulPreferenceSetAttribute", lt->set_preference);
  if (!is_complete || lt->create_(&lt->handle_) != CUBLAS_STATUS_SUCCESS) {
    lt->handle_ = nullptr;
    return nullptr;
  }
  return lt;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) {
    destroy_(handle_);
  }
  dlclose(library_);
}

}  // namespace rigel::kernels
