#pragma once

// cuBLASLt, loaded at run time: its library is nine times larger than all of ours and a machine may lack it. Only the types
// and the signatures come from its header.

#include <cublasLt.h>

#include <memory>

namespace rigel::kernels {

/// The functions of cuBLASLt that the engine calls, and the handle they take. Thread: any.
class CublasLt {
 public:
  /// Null where no libcublasLt can be loaded or it lacks one of the functions.
  [[nodiscard]] static std::unique_ptr<CublasLt> load();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }

  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;

 private:
  explicit CublasLt(void* library) : library_(library) {}

  void* library_;
  cublasLtHandle_t handle_ = nullptr;
  decltype(&cublasLtCreate) create_ = nullptr;
  decltype(&cublasLtDestroy) destroy_ = nullptr;
};

}  // namespace rigel::kernels
