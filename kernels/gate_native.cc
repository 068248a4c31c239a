#include "kernels/gate_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

/// x / (1 + exp(-y)). exp8 saturates instead of overflowing, so the quotient goes to zero and never to NaN.
RIGEL_NATIVE_INLINE F8 times_sigmoid(F8 x, F8 y) {
  return x / (splat8(1.0f) + exp8(-y));
}

struct Silu {
  RIGEL_NATIVE_INLINE F8 apply(F8 x) { return times_sigmoid(x, x); }
};

struct GeluTanh {
  RIGEL_NATIVE_INLINE F8 apply(F8 x) {
    const F8 cubic = fma8(splat8(0.044715f) * x, x * x, x);
    return times_sigmoid(x, splat8(2.0f * 0.7978845608f) * cubic);
  }
};

struct GeluErf {
  RIGEL_NATIVE_INLINE F8 apply(F8 x) {
    F8 result;
    for (int lane = 0; lane < 8; ++lane) {
      result[lane] = 0.5f * x[lane] * (1.0f + __builtin_erff(x[lane] * 0.70710678f));
    }
    return result;
  }
};

template <class Function, class T>
void gate_rows(simt::Pool& pool, const GateParams& params) {
  const int columns = params.columns;
  const int rows_each = rows_per_item(columns);
  pool.parallel_for((params.num_rows + rows_each - 1) / rows_each, [&](int item) {
    const int end = smaller((item + 1) * rows_each, params.num_rows);
    for (std::int64_t row = static_cast<std::int64_t>(item) * rows_each; row < end; ++row) {
      T* out = static_cast<T*>(params.out) + row * columns;
      const T* gates = static_cast<const T*>(params.gate_up) + row * 2 * columns;
      const T* ups = gates + columns;
      int column = 0;
      for (; column + 8 <= columns; column += 8) {
        store8(out + column, Function::apply(load8(gates + column)) * load8(ups + column));
      }
      const int rest = columns - column;
      if (rest > 0) {
        const F8 gated = Function::apply(load_part(gates + column, rest));
        store_part(out + column, gated * load_part(ups + column, rest), rest);
      }
    }
  });
}

}  // namespace

template <class T>
void gate_silu(simt::Pool& pool, const GateParams& params) {
  gate_rows<Silu, T>(pool, params);
}

template <class T>
void gate_gelu_tanh(simt::Pool& pool, const GateParams& params) {
  gate_rows<GeluTanh, T>(pool, params);
}

template <class T>
void gate_gelu_erf(simt::Pool& pool, const GateParams& params) {
  gate_rows<GeluErf, T>(pool, params);
}

template <class O, class T>
void add(simt::Pool& pool, const AddParams& params) {
  constexpr std::int64_t kItemElements = 32768;
  const std::int64_t num_items = (params.num_elements + kItemElements - 1) / kItemElements;
  pool.parallel_for(static_cast<int>(num_items), [&](int item) {
    std::int64_t at = item * kItemElements;
    const std::int64_t left = params.num_elements - at;
    const std::int64_t end = at + (left < kItemElements ? left : kItemElements);
    O* out = static_cast<O*>(params.out);
    const O* a = static_cast<const O*>(params.a);
    const T* b = static_cast<const T*>(params.b);
    for (; at + 8 <= end; at += 8) {
      store8(out + at, load8(a + at) + load8(b + at));
    }
    const int rest = static_cast<int>(end - at);
    if (rest > 0) {
      store_part(out + at, load_part(a + at, rest) + load_part(b + at, rest), rest);
    }
  });
}

#define RIGEL_INSTANTIATE(T)                                       \
  template void gate_silu<T>(simt::Pool&, const GateParams&);      \
  template void gate_gelu_tanh<T>(simt::Pool&, const GateParams&); \
  template void gate_gelu_erf<T>(simt::Pool&, const GateParams&);
RIGEL_INSTANTIATE(float)
RIGEL_INSTANTIATE(simt::bf16)
#undef RIGEL_INSTANTIATE

template void add<float, float>(simt::Pool&, const AddParams&);
template void add<float, simt::bf16>(simt::Pool&, const AddParams&);
template void add<simt::bf16, simt::bf16>(simt::Pool&, const AddParams&);

}  // namespace rigel::kernels::RIGEL_NATIVE
