#include "model/checkpoint/weight_reader.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel {
namespace {

constexpr std::int64_t kReportBytes = std::int64_t{1} << 20;

/// Rows in steps of about a megabyte of source, so that a large matrix shows progress.
std::int64_t rows_per_report(const CheckpointTensor& tensor) {
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(tensor.bytes.size()) / std::max<std::int64_t>(tensor.num_rows(), 1);
  return std::max<std::int64_t>(1, kReportBytes / std::max<std::int64_t>(row_bytes, 1));
}

template <class T>
void read_piece(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                std::int64_t out_row, const HostView& out) {
  const auto columns = static_cast<std::size_t>(tensor.num_columns());
  dequantize_rows(tensor, first_row, num_rows,
                  out.span<T>().subspan(static_cast<std::size_t>(out_row) * columns,
                                        static_cast<std::size_t>(num_rows) * columns));
}

/// Of a model that uses all of the checkpoint. A tied embedding is read twice: as the table and as the LM head.
std::int64_t bytes_to_read(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string embedding = source_name(checkpoint.format(), WeightKind::kEmbedding, kNoLayer);
  std::int64_t num_bytes = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const bool is_unread = is_derived_tensor(checkpoint.format(), tensor.name);
    const bool is_read_twice = config.tie_word_embeddings && tensor.name == embedding;
    num_bytes += static_cast<std::int64_t>(tensor.bytes.size()) * (is_unread       ? 0
                                                                   : is_read_twice ? 2
                                                                                   : 1);
  }
  return num_bytes;
}

}  // namespace

Shape weight_shape(const ModelConfig& config, WeightKind kind) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t mlp = config.intermediate_size;
  const std::int64_t q = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.num_kv_heads} * config.head_dim;
  switch (kind) {
    case WeightKind::kEmbedding:
    case WeightKind::kLmHead:
      return {config.vocab_size, hidden};
    case WeightKind::kFinalNorm:
    case WeightKind::kAttentionNorm:
    case WeightKind::kMlpNorm:
    case WeightKind::kOBias:
    case WeightKind::kDownBias:
      return {hidden};
    case WeightKind::kQ:
      return {q, hidden};
    case WeightKind::kK:
    case WeightKind::kV:
      return {kv, hidden};
    case WeightKind::kO:
      return {hidden, q};
    case WeightKind::kQBias:
      return {q};
    case WeightKind::kKBias:
    case WeightKind::kVBias:
      return {kv};
    case WeightKind::kQNorm:
    case WeightKind::kKNorm:
      return {config.head_dim};
    case WeightKind::kGate:
    case WeightKind::kUp:
      return {mlp, hidden};
    case WeightKind::kDown:
      return {hidden, mlp};
    case WeightKind::kGateBias:
    case WeightKind::kUpBias:
      return {mlp};
  }
  return {};
}

WeightReader::WeightReader(const Checkpoint& checkpoint, const ModelConfig& config,
                           LoadProgress* progress)
    : checkpoint_(checkpoint),
      config_(config),
      progress_(progress),
      used_(checkpoint.tensors().size(), false),
      bytes_total_(bytes_to_read(checkpoint, config)) {}

bool WeightReader::has(WeightKind kind, int layer) const {
  return checkpoint_.find(source_name(checkpoint_.format(), kind, layer)) != nullptr;
}

const CheckpointTensor& WeightReader::require(WeightKind kind, int layer) {
  const std::string name = source_name(checkpoint_.format(), kind, layer);
  const Shape expected = weight_shape(config_, kind);
  const CheckpointTensor* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    throw ModelFileError(fmt::format("the checkpoint lacks {}: tensor '{}' of shape {} is needed",
                                     canonical_name(kind, layer), name, to_string(expected)));
  }
  if (!(tensor->shape == expected)) {
    throw ModelFileError(fmt::format("tensor '{}' ({}) must have shape {}, got {}", name,
                                     canonical_name(kind, layer), to_string(expected),
                                     to_string(tensor->shape)));
  }
  used_[static_cast<std::size_t>(tensor - checkpoint_.tensors().data())] = true;
  return *tensor;
}

void WeightReader::read_rows(const CheckpointTensor& tensor, std::int64_t first_row,
                             std::int64_t num_rows, HostView out) {
  const std::int64_t step = rows_per_report(tensor);
  const std::int64_t row_bytes = static_cast<std::int64_t>(tensor.bytes.size()) / tensor.num_rows();
  for (std::int64_t done = 0; done < num_rows; done += step) {
    const std::int64_t count = std::min(step, num_rows - done);
    dispatch_activation(
        out.dtype(), [&]<class T>() { read_piece<T>(tensor, first_row + done, count, done, out); });
    bytes_done_ += count * row_bytes;
    if (progress_ != nullptr) {
      progress_->advance(bytes_done_, bytes_total_);
    }
  }
}

void WeightReader::read(WeightKind kind, int layer, HostView out) {
  const CheckpointTensor& tensor = require(kind, layer);
  RIGEL_CHECK(out.num_elements() == tensor.shape.num_elements(),
              "the output must hold the weight, got {} for {}", to_string(out.shape()),
              to_string(tensor.shape));
  read_rows(tensor, 0, tensor.num_rows(), out);
}

std::vector<std::string> WeightReader::unused() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    const std::string& name = checkpoint_.tensors()[i].name;
    if (!used_[i] && !is_derived_tensor(checkpoint_.format(), name)) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace rigel
