#pragma once

#include <cstdint>

namespace rigel::kernels {

struct GateParams {
  void* out;            // (T, I) activation type
  const void* gate_up;  // (T, 2 I) activation type
  int num_rows;
  int columns;  // I
};

struct AddParams {
  void* out;
  const void* a;
  const void* b;
  std::int64_t num_elements;
};

}  // namespace rigel::kernels
