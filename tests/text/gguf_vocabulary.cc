#include "tests/text/gguf_vocabulary.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <vector>

namespace rigel::text::testing {
namespace {

enum GgufType : uint32_t { kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

class GgufReader {
 public:
  explicit GgufReader(const std::string& path) : file_(path, std::ios::binary) {
    if (!file_) {
      throw std::runtime_error("cannot open " + path);
    }
    if (take<uint32_t>() != 0x46554747) {
      throw std::runtime_error(path + " is not a GGUF file");
    }
    take<uint32_t>();  // version
    take<uint64_t>();  // tensors
    const auto num_entries = take<uint64_t>();
    for (uint64_t i = 0; i < num_entries; ++i) {
      const std::string key = take_string();
      take_value(key);
    }
  }

  std::map<std::string, std::string> strings;
  std::map<std::string, int64_t> integers;
  std::map<std::string, std::vector<std::string>> string_arrays;
  std::map<std::string, std::vector<int32_t>> int_arrays;
  std::map<std::string, std::vector<float>> float_arrays;

 private:
  template <typename T>
  T take() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof(T));
    if (!file_) {
      throw std::runtime_error("GGUF file ends early");
    }
    return value;
  }

  std::string take_string() {
    std::string text(take<uint64_t>(), '\0');
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }

  static int64_t num_bytes(uint32_t type) {
    constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kBytes[type];
  }

  void take_value(const std::string& key) {
    const auto type = take<uint32_t>();
    if (type == kString) {
      strings[key] = take_string();
    } else if (type == kArray) {
      take_array(key);
    } else {
      int64_t value = 0;
      file_.read(reinterpret_cast<char*>(&value), num_bytes(type));
      integers[key] = value;
    }
  }

  void take_array(const std::string& key) {
    const auto type = take<uint32_t>();
    const auto num_items = take<uint64_t>();
    if (type == kString) {
      auto& items = string_arrays[key];
      for (uint64_t i = 0; i < num_items; ++i) {
        items.push_back(take_string());
      }
    } else if (type == kInt32) {
      int_arrays[key] = take_numbers<int32_t>(num_items);
    } else if (type == kFloat32) {
      float_arrays[key] = take_numbers<float>(num_items);
    } else {
      file_.ignore(num_bytes(type) * static_cast<int64_t>(num_items));
    }
  }

  template <typename T>
  std::vector<T> take_numbers(uint64_t num_items) {
    std::vector<T> items(num_items);
    file_.read(reinterpret_cast<char*>(items.data()),
               static_cast<std::streamsize>(num_items * sizeof(T)));
    return items;
  }

  std::ifstream file_;
};

}  // namespace

TokenizerSpec read_gguf_vocabulary(const std::string& path) {
  GgufReader file(path);
  const std::string prefix = "tokenizer.ggml.";
  const auto id = [&](const std::string& key) -> std::optional<int32_t> {
    const auto found = file.integers.find(prefix + key);
    if (found == file.integers.end()) {
      return std::nullopt;
    }
    return static_cast<int32_t>(found->second);
  };
  TokenizerSpec spec;
  const bool is_sentence_piece = file.strings.at(prefix + "model") == "llama";
  spec.model = is_sentence_piece ? TokenizerModel::kSentencePiece : TokenizerModel::kByteLevelBpe;
  spec.pre = file.strings.at(prefix + "pre");
  spec.tokens = file.string_arrays.at(prefix + "tokens");
  for (const int32_t type : file.int_arrays.at(prefix + "token_type")) {
    spec.types.push_back(static_cast<TokenType>(type));
  }
  spec.scores = file.float_arrays[prefix + "scores"];
  spec.merges = file.string_arrays[prefix + "merges"];
  spec.bos = id("bos_token_id");
  spec.eos = id("eos_token_id");
  spec.unknown = id("unknown_token_id");
  spec.padding = id("padding_token_id");
  const bool adds_bos_by_default = is_sentence_piece || spec.pre == "llama-bpe";
  spec.add_bos = id("add_bos_token").value_or(adds_bos_by_default) != 0;
  spec.add_eos = id("add_eos_token").value_or(0) != 0;
  spec.add_space_prefix = id("add_space_prefix").value_or(1) != 0;
  spec.name = file.strings["general.name"];
  spec.chat_template = file.strings["tokenizer.chat_template"];
  return spec;
}

std::optional<std::string> find_vocabulary(std::string_view tokenizer) {
  namespace fs = std::filesystem;
  const fs::path data(RIGEL_TEST_DATA);
  const fs::path root = data.parent_path().parent_path();
  std::vector<fs::path> places;
  if (tokenizer == "smollm2") {
    places = {root / "models/SmolLM2-135M-Instruct.Q4_1.gguf"};
  } else {
    // The larger vocabularies are not in the repository; whoever has them puts them beside the models.
    const std::string file = "ggml-vocab-" + std::string(tokenizer) + ".gguf";
    places = {data / "text/vocab" / file, root / "models" / file};
  }
  for (const fs::path& place : places) {
    if (fs::exists(place)) {
      return place.string();
    }
  }
  return std::nullopt;
}

}  // namespace rigel::text::testing
