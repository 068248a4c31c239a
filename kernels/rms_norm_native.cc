#include "kernels/rms_norm_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

// Squares go to 32 partial sums, element i to sum i mod 32: four independent chains hide the latency of FMA, and the order
// is the same at every vector width.
struct SquareSums {
  F8 sums[4];
};

RIGEL_NATIVE_INLINE float total(const SquareSums& squares) {
  return sum8((squares.sums[0] + squares.sums[2]) + (squares.sums[1] + squares.sums[3]));
}

RIGEL_NATIVE_INLINE float scale_of(float squares, int columns, float epsilon) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(columns) + epsilon);
}

template <class T>
struct Row {
  const float* x;
  float* residual;  // null, like delta, unless a delta is added
  const T* delta;
};

/// Eight elements of x (plus delta, then stored back), or the `count` of the row's end.
template <bool ADD, bool PART, class T>
RIGEL_NATIVE_INLINE F8 take(const Row<T>& row, int column, int count) {
  F8 values = PART ? load_part(row.x + column, count) : load8(row.x + column);
  if constexpr (ADD) {
    values = values + (PART ? load_part(row.delta + column, count) : load8(row.delta + column));
    PART ? store_part(row.residual + column, values, count) : store8(row.residual + column, values);
  }
  return values;
}

template <bool ADD, class T>
RIGEL_NATIVE_INLINE float sum_squares(const Row<T>& row, int columns) {
  SquareSums squares = {};
  int column = 0;
  for (; column + 32 <= columns; column += 32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const F8 values = take<ADD, false>(row, column + 8 * i, 8);
      squares.sums[i] = fma8(values, values, squares.sums[i]);
    }
  }
  for (int i = 0; column < columns; column += 8, ++i) {
    const F8 values = take<ADD, true>(row, column, smaller(columns - column, 8));
    squares.sums[i] = fma8(values, values, squares.sums[i]);
  }
  return total(squares);
}

template <class T, class X>
RIGEL_NATIVE_INLINE void write_scaled(T* out, const X* x, const float* weight, float scale,
                                      int columns) {
  const F8 scales = splat8(scale);
  int column = 0;
  for (; column + 8 <= columns; column += 8) {
    store8(out + column, load8(x + column) * scales * load8(weight + column));
  }
  const int rest = columns - column;
  if (rest > 0) {
    store_part(out + column,
               load_part(x + column, rest) * scales * load_part(weight + column, rest), rest);
  }
}

template <class T, bool ADD>
void normalise_rows(simt::Pool& pool, const RmsNormParams& params) {
  const int rows_each = rows_per_item(params.columns);
  pool.parallel_for((params.num_rows + rows_each - 1) / rows_each, [&](int item) {
    const int end = smaller((item + 1) * rows_each, params.num_rows);
    for (int row = item * rows_each; row < end; ++row) {
      const std::int64_t start = static_cast<std::int64_t>(row) * params.columns;
      Row<T> elements{params.x + start, nullptr, nullptr};
      if constexpr (ADD) {
        elements.residual = params.residual + start;
        elements.delta = static_cast<const T*>(params.delta) + start;
      }
      const float squares = sum_squares<ADD>(elements, params.columns);
      write_scaled(static_cast<T*>(params.out) + start, params.x + start, params.weight,
                   scale_of(squares, params.columns, params.epsilon), params.columns);
    }
  });
}

}  // namespace

template <class T>
void rms_norm(simt::Pool& pool, const RmsNormParams& params) {
  normalise_rows<T, false>(pool, params);
}

template <class T>
void add_rms_norm(simt::Pool& pool, const RmsNormParams& params) {
  normalise_rows<T, true>(pool, params);
}

template <class T>
void head_rms_norm(simt::Pool& pool, const HeadRmsNormParams& params) {
  const int size = params.head_size;
  const int tokens_each = rows_per_item(static_cast<std::int64_t>(size) * params.num_heads);
  pool.parallel_for((params.num_tokens + tokens_each - 1) / tokens_each, [&](int item) {
    const int end = smaller((item + 1) * tokens_each, params.num_tokens);
    for (int token = item * tokens_each; token < end; ++token) {
      for (int head = 0; head < params.num_heads; ++head) {
        T* elements =
            static_cast<T*>(params.heads) + token * params.token_stride + head * params.head_stride;
        SquareSums squares = {};
        for (int column = 0; column < size; column += 8) {
          const int count = smaller(size - column, 8);
          const F8 values =
              count == 8 ? load8(elements + column) : load_part(elements + column, count);
          F8& sum = squares.sums[(column / 8) % 4];
          sum = fma8(values, values, sum);
        }
        write_scaled(elements, elements, params.weight,
                     scale_of(total(squares), size, params.epsilon), size);
      }
    }
  });
}

#define RIGEL_INSTANTIATE(T)                                        \
  template void rms_norm<T>(simt::Pool&, const RmsNormParams&);     \
  template void add_rms_norm<T>(simt::Pool&, const RmsNormParams&); \
  template void head_rms_norm<T>(simt::Pool&, const HeadRmsNormParams&);
RIGEL_INSTANTIATE(float)
RIGEL_INSTANTIATE(simt::bf16)
#undef RIGEL_INSTANTIATE

}  // namespace rigel::kernels::RIGEL_NATIVE
