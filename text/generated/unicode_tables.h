#pragma once

#include <cstddef>
#include <cstdint>

/// The data of scripts/generate_unicode_tables.py; text/unicode.h is the way to ask it.
/// Every table is sorted by its first column.
namespace rigel::text::unicode_tables {

struct Range {
  char32_t first;
  char32_t last;  // inclusive
};

struct CombiningRange {
  char32_t first;
  char32_t last;  // inclusive
  uint8_t combining_class;
};

/// `num_parts` entries of decomposition_parts from `first_part` on: the full canonical decomposition.
struct Decomposition {
  char32_t code_point;
  uint16_t first_part;
  uint8_t num_parts;
};

/// Sorted by (first, second).
struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};

/// Up to three code points, the unused ones 0.
struct CaseMapping {
  char32_t from;
  char32_t to[3];
};

extern const Range letters[];
extern const std::size_t letters_count;
extern const Range numbers[];
extern const std::size_t numbers_count;
extern const Range white_space[];
extern const std::size_t white_space_count;
extern const Range unprintable[];
extern const std::size_t unprintable_count;
extern const CombiningRange combining[];
extern const std::size_t combining_count;
extern const Decomposition decompositions[];
extern const std::size_t decompositions_count;
extern const char32_t decomposition_parts[];
extern const Composition compositions[];
extern const std::size_t compositions_count;
extern const CaseMapping lower_case[];
extern const std::size_t lower_case_count;
extern const CaseMapping upper_case[];
extern const std::size_t upper_case_count;

}  // namespace rigel::text::unicode_tables
