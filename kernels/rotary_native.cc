#include "kernels/rotary_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

// A sine and a cosine take about 40 ns: 256 pairs are an item of 10 us.
constexpr int kAnglesOfItem = 256;

/// Eight pairs' {cos, sin} as two vectors.
RIGEL_NATIVE_INLINE void split_angles(const float* angles, F8& cosines, F8& sines) {
  const __m256 low = load8(angles);
  const __m256 high = load8(angles + 8);
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
  const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
  cosines = _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8));
  sines = _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8));
}

template <class T>
RIGEL_NATIVE_INLINE float read_element(const T* from) {
  return load_part(from, 1)[0];
}
template <class T>
RIGEL_NATIVE_INLINE void write_element(T* to, float value) {
  store_part(to, splat8(value), 1);
}

template <class T>
RIGEL_NATIVE_INLINE void rotate_pair(const T* from, T* to, int low, int high, float cosine,
                                     float sine) {
  const float a = read_element(from + low);
  const float b = read_element(from + high);
  write_element(to + low, __builtin_fmaf(a, cosine, -(b * sine)));
  write_element(to + high, __builtin_fmaf(b, cosine, a * sine));
}

/// Pairs (2i, 2i + 1).
template <class T>
RIGEL_NATIVE_INLINE void rotate_interleaved(const T* from, T* to, const float* angles, int dim) {
  int d = 0;
  for (; d + 8 <= dim; d += 8) {
    const __m256 x = load8(from + d);
    const __m256 angle = load8(angles + d);
    const __m256 swapped = _mm256_permute_ps(x, 0xb1);
    const __m256 cross = _mm256_mul_ps(swapped, _mm256_movehdup_ps(angle));
    // Even lanes a cos - b sin, odd lanes b cos + a sin.
    store8(to + d, _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(angle), cross));
  }
  for (; d < dim; d += 2) {
    rotate_pair(from, to, d, d + 1, angles[d], angles[d + 1]);
  }
}

/// Pairs (i, i + dim / 2).
template <class T>
RIGEL_NATIVE_INLINE void rotate_halves(const T* from, T* to, const float* angles, int dim) {
  const int half = dim / 2;
  int i = 0;
  for (; i + 8 <= half; i += 8) {
    F8 cosines;
    F8 sines;
    split_angles(angles + 2 * i, cosines, sines);
    const F8 a = load8(from + i);
    const F8 b = load8(from + half + i);
    store8(to + i, _mm256_fmsub_ps(a, cosines, _mm256_mul_ps(b, sines)));
    store8(to + half + i, _mm256_fmadd_ps(b, cosines, _mm256_mul_ps(a, sines)));
  }
  for (; i < half; ++i) {
    rotate_pair(from, to, i, half + i, angles[2 * i], angles[2 * i + 1]);
  }
}

template <class T, bool INTERLEAVED>
RIGEL_NATIVE_INLINE void rotate_head(const RotaryParams& p, const T* from, T* to,
                                     const float* angles) {
  if constexpr (INTERLEAVED) {
    rotate_interleaved(from, to, angles, p.rotary_dim);
  } else {
    rotate_halves(from, to, angles, p.rotary_dim);
  }
}

template <class T, bool INTERLEAVED>
void rotate_token(const RotaryParams& p, int token) {
  T* head = static_cast<T*>(p.qkv) + token * p.qkv_stride;
  const float* angles = p.angles + std::int64_t{token} * p.rotary_dim;
  for (int i = 0; i < p.num_heads; ++i, head += p.head_size) {
    rotate_head<T, INTERLEAVED>(p, head, head, angles);
  }
  if (p.num_kv_heads == 0) {
    return;
  }
  const std::int32_t position = p.positions[token];
  const std::int32_t* pages =
      p.page_table + std::int64_t{p.token_rows[token]} * p.page_table_stride;
  const std::int64_t page = pages[position >> p.page_shift];
  const std::int64_t in_page = position & ((1 << p.page_shift) - 1);
  const auto rest = static_cast<std::size_t>(p.head_size - p.rotary_dim) * sizeof(T);
  for (int line = 0; line < 2 * p.num_kv_heads; ++line, head += p.head_size) {
    const std::int64_t at = (page * 2 * p.num_kv_heads + line) << p.page_shift;
    T* to = static_cast<T*>(p.kv) + (at + in_page) * p.head_size;
    if (line < p.num_kv_heads) {
      rotate_head<T, INTERLEAVED>(p, head, to, angles);
      __builtin_memcpy(to + p.rotary_dim, head + p.rotary_dim, rest);
    } else {
      __builtin_memcpy(to, head, static_cast<std::size_t>(p.head_size) * sizeof(T));
    }
  }
}

}  // namespace

void rotary_angles(simt::Pool& pool, const RotaryAnglesParams& params) {
  const int tokens_of_item = kAnglesOfItem / params.num_pairs + 1;
  const int num_items = (params.num_tokens + tokens_of_item - 1) / tokens_of_item;
  pool.parallel_for(num_items, [&](int item) {
    const int first = item * tokens_of_item;
    const int end = smaller(first + tokens_of_item, params.num_tokens);
    for (int token = first; token < end; ++token) {
      float* out = params.angles + std::int64_t{token} * params.num_pairs * 2;
      const std::int32_t position = params.positions[token];
      for (int pair = 0; pair < params.num_pairs; ++pair) {
        const float angle = static_cast<float>(position) * params.inverse_frequencies[pair];
        out[2 * pair] = position < 0 ? 0.0f : __builtin_cosf(angle) * params.scale;
        out[2 * pair + 1] = position < 0 ? 0.0f : __builtin_sinf(angle) * params.scale;
      }
    }
  });
}

template <class T, bool INTERLEAVED>
void rotary(simt::Pool& pool, const RotaryParams& params) {
  const int tokens_of_item =
      rows_per_item(std::int64_t{params.num_heads + 2 * params.num_kv_heads} * params.head_size);
  const int num_items = (params.num_tokens + tokens_of_item - 1) / tokens_of_item;
  pool.parallel_for(num_items, [&](int item) {
    const int first = item * tokens_of_item;
    const int end = smaller(first + tokens_of_item, params.num_tokens);
    for (int token = first; token < end; ++token) {
      if (params.token_rows == nullptr || params.token_rows[token] >= 0) {
        rotate_token<T, INTERLEAVED>(params, token);
      }
    }
  });
}

template void rotary<float, false>(simt::Pool&, const RotaryParams&);
template void rotary<float, true>(simt::Pool&, const RotaryParams&);
template void rotary<simt::bf16, false>(simt::Pool&, const RotaryParams&);
template void rotary<simt::bf16, true>(simt::Pool&, const RotaryParams&);

}  // namespace rigel::kernels::RIGEL_NATIVE
