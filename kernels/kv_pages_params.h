#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

/// Pages that one launch copies: they travel in its parameters.
inline constexpr int kMaxPageCopies = 28;

/// Where page p of layer l begins: data + p * page_stride + l * layer_stride, in bytes.
struct PagedBytes {
  std::byte* data;
  std::int64_t page_stride;
  std::int64_t layer_stride;
};

struct CopyPagesParams {
  PagedBytes target;
  PagedBytes source;
  std::int64_t block_bytes;  // of one page in one layer, a multiple of 16
  std::int32_t target_pages[kMaxPageCopies];
  std::int32_t source_pages[kMaxPageCopies];
  std::int32_t num_pages;
  std::int32_t num_layers;
};

}  // namespace rigel::kernels
