#include "model/checkpoint/checkpoint.h"

#include "model/model_file_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace rigel {

std::string_view name_of(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kGguf:
      return "GGUF";
    case CheckpointFormat::kHuggingFace:
      return "Hugging Face";
  }
  return "?";
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const CheckpointTensor& tensor : tensors_) {
    names.emplace_back(tensor.name);
  }
  return names;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const CheckpointTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void Checkpoint::adopt(std::vector<CheckpointTensor> tensors, std::string_view source) {
  tensors_ = std::move(tensors);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const CheckpointTensor& a, const CheckpointTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const CheckpointTensor& a, const CheckpointTensor& b) { return a.name == b.name; });
  if (twice != tensors_.end()) {
    throw ModelFileError(fmt::format("{}: tensor '{}' occurs twice", source, twice->name));
  }
  total_bytes_ = 0;
  for (const CheckpointTensor& tensor : tensors_) {
    total_bytes_ += static_cast<std::int64_t>(tensor.bytes.size());
  }
}

}  // namespace rigel
