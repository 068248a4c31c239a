#include "kernels/gemm_native.h"

#include "simt/pool.h"

#include <cstdint>

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

using std::int64_t;
using std::uint16_t;
using std::uint32_t;

#ifdef __AVX512F__
constexpr int kLanes = 16;
constexpr int kTileRows = 12;  // 12 x 32 = 24 accumulators, of 32 registers
constexpr int kTilePanels = 2;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 6 x 16 = 12 accumulators, of 16 registers
constexpr int kTilePanels = 1;
constexpr int kRegisters = 16;
#endif
constexpr int kColumns = kGemmPanelColumns;
constexpr int kParts = kColumns / kLanes;  // vectors that hold one row of a panel

// FMA has 4 cycles of latency and starts twice a cycle, so at least 8 accumulators keep it busy. A tile of few rows takes
// more panels to get there, as far as registers last; more accumulators for one output would change its bits.
constexpr int panels_of_tile(int rows) {
  int panels = (8 + rows * kParts - 1) / (rows * kParts);
  panels = panels > kTilePanels ? panels : kTilePanels;
  const auto registers_for = [rows](int num_panels) {
    const int columns = rows == 1 ? kParts : num_panels * kParts;  // one row uses each vector once
    return rows * num_panels * kParts + columns + 1;
  };
  while (panels > 1 && registers_for(panels) > kRegisters) {
    --panels;
  }
  return panels;
}

// The rows of x that one item multiplies stay in the second-level cache while the panels stream by.
constexpr int64_t kRowBlockBytes = 256 * 1024;
constexpr double kWorthNanoseconds = 10e3;  // items of less cost more to hand out than to compute

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

using Floats = float __attribute__((vector_size(kLanes * 4)));
using Words = uint32_t __attribute__((vector_size(kLanes * 4)));

// Unaligned vectors in memory.
using FloatsInMemory = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
using WordsInMemory = uint32_t __attribute__((vector_size(kLanes * 4), aligned(2), may_alias));
using HalvesInMemory = uint16_t __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));

struct PanelRow {
  Floats part[kParts];
};

[[gnu::always_inline]] inline Floats load(const float* from) {
  return *reinterpret_cast<const FloatsInMemory*>(from);
}
[[gnu::always_inline]] inline void store(float* to, Floats value) {
  *reinterpret_cast<FloatsInMemory*>(to) = value;
}

[[gnu::always_inline]] inline PanelRow load_panel_row(const float* from) {
  PanelRow row;
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    row.part[part] = load(from + part * kLanes);
  }
  return row;
}

/// Widens 16 bf16. With 16 lanes the vector is in the order of memory (0 8 1 9 ...) until `in_column_order`.
[[gnu::always_inline]] inline PanelRow load_panel_row(const uint16_t* from) {
#ifdef __AVX512F__
  const HalvesInMemory halves = *reinterpret_cast<const HalvesInMemory*>(from);
  return {{reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16)}};
#else
  const Words words = *reinterpret_cast<const WordsInMemory*>(from);
  return {{reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xffff0000u)}};
#endif
}

template <class T>
[[gnu::always_inline]] inline Floats in_column_order(Floats sums) {
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 2) {
    return __builtin_shuffle(sums, Words{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15});
  }
#endif
  return sums;
}

/// To nearest even; NaN stays NaN (quiet).
[[gnu::always_inline]] inline void store_bf16(uint16_t* to, Floats value) {
  const Words word = reinterpret_cast<Words>(value);
  const Words rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const Words quiet = (word >> 16) | 0x40u;
  const Words is_nan = reinterpret_cast<Words>(value != value);
  const Words bits = (quiet & is_nan) | (rounded & ~is_nan);
  *reinterpret_cast<HalvesInMemory*>(to) = __builtin_convertvector(bits, HalvesInMemory);
}

/// Adds the bias and puts 16 sums (or those left of N) where the output mode says.
template <class T>
void finish_row(const GemmParams& p, const float* sums, int64_t row, int64_t column) {
  const int64_t left = p.num_columns - column;
  const int num_columns = left < kColumns ? static_cast<int>(left) : kColumns;
  const int64_t at = row * p.out_row_stride + column;
  alignas(64) float values[kColumns] = {};
  for (int part = 0; part < kParts; ++part) {
    store(values + part * kLanes, in_column_order<T>(load(sums + part * kLanes)));
  }
  if (p.bias != nullptr) {
    for (int i = 0; i < num_columns; ++i) {
      values[i] += p.bias[column + i];
    }
  }
  if (sizeof(T) == 2 && p.output == GemmOutput::kActivation) {
    uint16_t halves[kColumns];
    for (int part = 0; part < kParts; ++part) {
      store_bf16(halves + part * kLanes, load(values + part * kLanes));
    }
    __builtin_memcpy(static_cast<uint16_t*>(p.out) + at, halves, num_columns * sizeof(uint16_t));
    return;
  }
  float* out = static_cast<float*>(p.out) + at;
  const bool accumulates = p.output == GemmOutput::kAccumulate;
  for (int i = 0; i < num_columns; ++i) {
    out[i] = accumulates ? out[i] + values[i] : values[i];
  }
}

/// The end of a tile, out of line: inlined into each of the tiles it made 500 KB of code.
template <class T>
[[gnu::noinline]] void finish_tile(const GemmParams& p, const float* sums, int num_rows,
                                   int num_panels, int64_t row, int64_t panel) {
  for (int r = 0; r < num_rows; ++r) {
    for (int i = 0; i < num_panels; ++i) {
      finish_row<T>(p, sums + (r * num_panels + i) * kColumns, row + r, (panel + i) * kColumns);
    }
  }
}

/// The rows of x as floats.
struct Rows {
  const float* data;
  int64_t stride;
};

/// `kRows` rows from `row` times `kPanels` panels from `panel`, over the whole depth.
template <class T, int kRows, int kPanels>
[[gnu::noinline]] void multiply_tile(const GemmParams& p, Rows x, int64_t row, int64_t panel) {
  Floats sums[kRows][kPanels][kParts] = {};
  const int64_t depth = p.depth;
  const int64_t panel_size = depth * kColumns;
  const T* weight = static_cast<const T*>(p.weight) + panel * panel_size;
  const float* from = x.data + row * x.stride;
  for (int64_t k = 0; k < depth; ++k) {
    // The panels' vectors first, then row by row: one factor is live at a time and nothing spills.
    PanelRow columns[kPanels];
#pragma GCC unroll 16
    for (int i = 0; i < kPanels; ++i) {
      if constexpr (kRows > 1) {
        // The next panels come from memory while these are multiplied with all their row tiles.
        __builtin_prefetch(weight + (kPanels + i) * panel_size + k * kColumns, 0, 2);
      }
      columns[i] = load_panel_row(weight + i * panel_size + k * kColumns);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float factor = from[r * x.stride + k];
#pragma GCC unroll 16
      for (int i = 0; i < kPanels; ++i) {
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          sums[r][i][part] += columns[i].part[part] * factor;
        }
      }
    }
  }
  alignas(64) float finished[kRows * kPanels * kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kPanels; ++i) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        store(finished + (r * kPanels + i) * kColumns + part * kLanes, sums[r][i][part]);
      }
    }
  }
  finish_tile<T>(p, finished, kRows, kPanels, row, panel);
}

/// All panels of [panel, end) for `kRows` rows: wide tiles first, then narrower ones.
template <class T, int kRows, int kPanels = panels_of_tile(kRows)>
void multiply_panels(const GemmParams& p, Rows x, int64_t row, int64_t panel, int64_t end) {
  for (; panel + kPanels <= end; panel += kPanels) {
    multiply_tile<T, kRows, kPanels>(p, x, row, panel);
  }
  if constexpr (kPanels > 1) {
    multiply_panels<T, kRows, kPanels / 2>(p, x, row, panel, end);
  }
}

template <class T, int kRows = kTileRows>
void multiply_rows(const GemmParams& p, Rows x, int num_rows, int64_t row, int64_t panel,
                   int64_t end) {
  if (num_rows == kRows) {
    multiply_panels<T, kRows>(p, x, row, panel, end);
  } else if constexpr (kRows > 1) {
    multiply_rows<T, kRows - 1>(p, x, num_rows, row, panel, end);
  }
}

/// A rectangle of the output.
struct Block {
  int64_t row, end_row;
  int64_t panel, end_panel;
};

/// Panels outside, row tiles inside: a panel is read from memory once and then stays near.
template <class T>
void multiply_block(const GemmParams& p, Rows x, const Block& block) {
  const int64_t num_rows = block.end_row - block.row;
  const int64_t num_tiles = ceil_div(num_rows, kTileRows);
  const int64_t step = num_tiles == 1 ? block.end_panel - block.panel : 2 * kTilePanels;
  for (int64_t panel = block.panel; panel < block.end_panel; panel += step) {
    const int64_t end = smaller(panel + step, block.end_panel);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      // Even shares (7 rows are 4 + 3): a lone last row would run at the speed of memory.
      const int64_t row = tile * num_rows / num_tiles;
      const int64_t next = (tile + 1) * num_rows / num_tiles;
      multiply_rows<T>(p, x, static_cast<int>(next - row), block.row + row, panel, end);
    }
  }
}

/// How the output is cut into items for the pool. Column blocks begin at multiples of kSplitPanels, so that wide tiles fill
/// them.
constexpr int64_t kSplitPanels = 8;

struct Split {
  int64_t rows_per_block;
  int64_t row_blocks;
  int64_t column_blocks;
  int64_t num_panels;

  Block block(const GemmParams& p, int64_t item) const {
    const int64_t row = item / column_blocks * rows_per_block;
    const int64_t end = row + rows_per_block;
    const int64_t column_block = item % column_blocks;
    return {.row = row,
            .end_row = end < p.num_rows ? end : p.num_rows,
            .panel = first_panel(column_block),
            .end_panel = first_panel(column_block + 1)};
  }

  int64_t first_panel(int64_t column_block) const {
    const int64_t units = (num_panels + kSplitPanels - 1) / kSplitPanels;
    const int64_t panel = column_block * units / column_blocks * kSplitPanels;
    return panel < num_panels ? panel : num_panels;
  }
};

/// Rows of a block: as many as the cache holds, whole tiles, the same for all blocks but the last.
int64_t rows_per_block(const GemmParams& p) {
  const int64_t fitting = kRowBlockBytes / (int64_t{4} * p.depth) / kTileRows * kTileRows;
  const int64_t most = smaller(fitting < kTileRows ? kTileRows : fitting, 16 * kTileRows);
  if (p.num_rows <= most) {
    return p.num_rows;
  }
  const int64_t even = ceil_div(p.num_rows, ceil_div(p.num_rows, most));
  return ceil_div(even, kTileRows) * kTileRows;
}

Split split_for(const GemmParams& p, int num_threads) {
  const int64_t rows = rows_per_block(p);
  const int64_t row_blocks = ceil_div(p.num_rows, rows);
  const int64_t num_panels = ceil_div(p.num_columns, kColumns);
  // One core reads about 20 bytes/ns of weights and does about 60 flops/ns.
  const double elements = static_cast<double>(p.num_columns) * p.depth;
  const double read_ns = elements * (p.is_bf16 ? 2 : 4) / 20;
  const double multiply_ns = elements * 2 * static_cast<double>(rows) / 60;
  const double block_ns = read_ns > multiply_ns ? read_ns : multiply_ns;
  // Four items a thread even out a disturbed core; one item where the work is small.
  const int64_t wanted = num_threads == 1 ? 1 : ceil_div(int64_t{4} * num_threads, row_blocks);
  const int64_t worth = static_cast<int64_t>(block_ns / kWorthNanoseconds);
  const int64_t possible = ceil_div(num_panels, kSplitPanels);
  const int64_t column_blocks = smaller(smaller(wanted, worth), possible);
  return {.rows_per_block = rows,
          .row_blocks = row_blocks,
          .column_blocks = column_blocks < 1 ? 1 : column_blocks,
          .num_panels = num_panels};
}

Rows as_floats(const GemmParams& p) {
  if (!p.is_bf16) {
    return {.data = static_cast<const float*>(p.x), .stride = p.x_row_stride};
  }
  for (int64_t row = 0; row < p.num_rows; ++row) {
    const uint16_t* from = static_cast<const uint16_t*>(p.x) + row * p.x_row_stride;
    uint32_t* to = reinterpret_cast<uint32_t*>(p.widened + row * p.widened_row_stride);
    for (int64_t k = 0; k < p.depth; ++k) {
      to[k] = static_cast<uint32_t>(from[k]) << 16;
    }
  }
  return {.data = p.widened, .stride = p.widened_row_stride};
}

}  // namespace

void gemm(simt::Pool& pool, const GemmParams& params) {
  if (params.num_rows == 0 || params.num_columns == 0) {
    return;
  }
  const Rows x = as_floats(params);
  const Split split = split_for(params, pool.num_threads());
  pool.parallel_for(static_cast<int>(split.row_blocks * split.column_blocks), [&](int item) {
    const Block block = split.block(params, item);
    if (params.is_bf16) {
      multiply_block<uint16_t>(params, x, block);
    } else {
      multiply_block<float>(params, x, block);
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE
