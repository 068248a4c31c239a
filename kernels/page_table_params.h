#pragma once

#include <cstdint>

namespace rigel::kernels {

struct PageUpdatesParams {
  std::int32_t* page_table;     // (R, num_columns)
  const std::int32_t* updates;  // (num_updates, 3): row, index, page
  std::int32_t num_rows;
  std::int32_t num_columns;
  std::int32_t num_updates;
};

}  // namespace rigel::kernels
