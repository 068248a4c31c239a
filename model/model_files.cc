#include "model/model_files.h"

#include "model/checkpoint/gguf.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "model/gguf_config.h"
#include "model/hugging_face_config.h"
#include "model/tokenizer_loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

namespace rigel {
namespace {

namespace fs = std::filesystem;

/// "models/llama/" -> "llama", "model.gguf" -> "model".
std::string name_from_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path last = whole.has_filename() ? whole : whole.parent_path();
  return fs::is_directory(path) ? last.filename().string() : last.stem().string();
}

/// Model and tokenizer each name ids that end a generation; what one of them knows, both should.
void unite_end_of_generation(ModelConfig& config, std::optional<text::TokenizerSpec>& tokenizer) {
  if (!tokenizer) {
    return;
  }
  std::vector<int>& ids = config.eos_ids;
  for (const std::int32_t id : tokenizer->end_of_generation) {
    if (id < config.vocab_size) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  tokenizer->end_of_generation.assign(ids.begin(), ids.end());
}

bool begins_like_gguf(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

ModelFiles open_gguf(const fs::path& path) {
  auto checkpoint = std::make_unique<GgufCheckpoint>(path);
  ModelFiles files;
  files.config = gguf_model_config(*checkpoint);
  files.tokenizer = load_tokenizer(checkpoint->metadata());
  files.name = checkpoint->metadata().string("general.name").value_or(name_from_path(path));
  files.checkpoint = std::move(checkpoint);
  return files;
}

ModelFiles open_hugging_face(const fs::path& directory) {
  const fs::path config_path = directory / "config.json";
  if (!fs::exists(config_path)) {
    throw ModelFileError(
        fmt::format("{}: no config.json in this directory; a model is a GGUF file or a directory "
                    "with config.json and *.safetensors",
                    directory.string()));
  }
  ModelFiles files;
  files.config = parse_hugging_face_config(read_text_file(config_path), config_path.string());
  const fs::path generation_path = directory / "generation_config.json";
  if (fs::exists(generation_path)) {
    apply_generation_config(read_text_file(generation_path), generation_path.string(),
                            files.config);
  }
  files.tokenizer = load_tokenizer(directory);
  files.name = name_from_path(directory);
  files.checkpoint = std::make_unique<SafetensorsCheckpoint>(directory);
  return files;
}

/// Whether it is a directory; throws unless it is one or a GGUF file.
bool is_model_directory(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw ModelFileError(fmt::format("{}: no such file or directory", path.string()));
  }
  if (!fs::is_directory(status) && !begins_like_gguf(path)) {
    throw ModelFileError(
        fmt::format("{}: not a GGUF file (it does not begin with \"GGUF\"); for "
                    "safetensors give the directory that holds config.json",
                    path.string()));
  }
  return fs::is_directory(status);
}

}  // namespace

ModelFiles open_model_files(const fs::path& path) {
  const bool is_directory = is_model_directory(path);
  ModelFiles files = is_directory ? open_hugging_face(path) : open_gguf(path);
  unite_end_of_generation(files.config, files.tokenizer);
  if (files.tokenizer &&
      files.tokenizer->tokens.size() > static_cast<std::size_t>(files.config.vocab_size)) {
    throw ModelFileError(
        fmt::format("{}: the tokenizer has {} tokens, more than the model's "
                    "vocabulary of {}",
                    path.string(), files.tokenizer->tokens.size(), files.config.vocab_size));
  }
  return files;
}

std::optional<text::TokenizerSpec> open_tokenizer(const fs::path& path) {
  if (is_model_directory(path)) {
    return load_tokenizer(path);
  }
  return load_tokenizer(GgufCheckpoint(path).metadata());
}

}  // namespace rigel
