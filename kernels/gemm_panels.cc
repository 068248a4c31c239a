#include "kernels/gemm_panels.h"

#include "kernels/gemm_params.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace rigel::kernels {
namespace {

/// Writes rows [first, first + n) of (n, depth) elements into the panels. Word is an unsigned integer of the element's size.
template <class Word>
void pack_rows(Word* panels, std::int64_t depth, std::int64_t first, std::int64_t num_rows,
               const Word* rows) {
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::int64_t row = first + i;
    const int slot = gemm_panel_slot(static_cast<int>(row % kGemmPanelColumns), sizeof(Word));
    Word* target = panels + row / kGemmPanelColumns * depth * kGemmPanelColumns + slot;
    const Word* source = rows + i * depth;
    for (std::int64_t k = 0; k < depth; ++k) {
      target[k * kGemmPanelColumns] = source[k];
    }
  }
}

class PanelPacker final : public GemmWeightPacker {
 public:
  PanelPacker(Device& device, Dtype dtype, std::int64_t num_rows, std::int64_t num_columns)
      : device_(device),
        dtype_(dtype),
        num_rows_(num_rows),
        num_columns_(num_columns),
        buffer_(device, gemm_panels_bytes(dtype, num_rows, num_columns)) {
    if (device.is_cuda()) {
      staging_.resize(static_cast<std::size_t>(buffer_.num_bytes()));
      panels_ = staging_.data();
    } else {
      panels_ = buffer_.raw();
      std::memset(panels_, 0, static_cast<std::size_t>(buffer_.num_bytes()));
    }
  }

  void add_rows(std::int64_t first_row, ConstHostView rows) override {
    if (size_of(dtype_) == 2) {
      pack_as<std::uint16_t>(first_row, rows);
    } else {
      pack_as<std::uint32_t>(first_row, rows);
    }
  }

  GemmWeight finish() override {
    if (device_.is_cuda()) {
      const Stream stream(device_);
      const Shape shape = {buffer_.num_bytes()};
      copy(stream, buffer_.view(Dtype::kU8, shape), ConstHostView(panels_, Dtype::kU8, shape));
      stream.synchronize();
    }
    return GemmWeight(dtype_, num_rows_, num_columns_, GemmLayout::kPanels, std::move(buffer_));
  }

 private:
  template <class Word>
  void pack_as(std::int64_t first_row, ConstHostView rows) {
    pack_rows(reinterpret_cast<Word*>(panels_), num_columns_, first_row, rows.dim(0),
              reinterpret_cast<const Word*>(rows.raw()));
  }

  Device& device_;
  Dtype dtype_;
  std::int64_t num_rows_;
  std::int64_t num_columns_;
  DeviceBuffer buffer_;
  std::vector<std::byte> staging_;
  std::byte* panels_ = nullptr;
};

}  // namespace

std::int64_t gemm_panels_bytes(Dtype dtype, std::int64_t num_rows, std::int64_t num_columns) {
  const std::int64_t num_panels = (num_rows + kGemmPanelColumns - 1) / kGemmPanelColumns;
  return num_panels * kGemmPanelColumns * num_columns * static_cast<std::int64_t>(size_of(dtype));
}

std::unique_ptr<GemmWeightPacker> make_panel_packer(Device& device, Dtype dtype,
                                                    std::int64_t num_rows,
                                                    std::int64_t num_columns) {
  return std::make_unique<PanelPacker>(device, dtype, num_rows, num_columns);
}

}  // namespace rigel::kernels
