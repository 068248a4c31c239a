#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::testing {

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

inline void append_text(Bytes& bytes, std::string_view text) {
  append<std::uint64_t>(bytes, text.size());
  for (const char letter : text) {
    bytes.push_back(static_cast<std::byte>(letter));
  }
}

/// Writes GGUF files from the specification, independently of the reader: what a test says is what the file holds, right or
/// wrong.
class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version) : version_(version) {}

  template <class T>
  GgufWriter& scalar(std::string_view key, std::uint32_t type, T value) {
    entry(key, type);
    append(entries_, value);
    return *this;
  }
  GgufWriter& u32(std::string_view key, std::uint32_t value) { return scalar(key, 4, value); }
  GgufWriter& f32(std::string_view key, float value) { return scalar(key, 6, value); }
  GgufWriter& boolean(std::string_view key, bool value) {
    return scalar(key, 7, static_cast<std::uint8_t>(value));
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    entry(key, 8);
    append_text(entries_, value);
    return *this;
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& value : values) {
      append_text(entries_, value);
    }
    return *this;
  }
  template <class T>
  GgufWriter& numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    array(key, type, values.size());
    for (const T value : values) {
      append(entries_, value);
    }
    return *this;
  }
  /// `dims` innermost first, as in the file.
  GgufWriter& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                     Bytes data) {
    tensors_.push_back({std::string(name), std::move(dims), type, std::move(data)});
    return *this;
  }

  [[nodiscard]] Bytes finish(std::uint64_t alignment = 32) const {
    Bytes file;
    append<std::uint32_t>(file, 0x46554747);
    append(file, version_);
    append<std::uint64_t>(file, tensors_.size());
    append(file, num_entries_);
    file.insert(file.end(), entries_.begin(), entries_.end());
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      append_text(file, tensor.name);
      append(file, static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) {
        append(file, dim);
      }
      append(file, tensor.type);
      append(file, offset);
      offset += round_up(tensor.data.size(), alignment);
    }
    for (const Tensor& tensor : tensors_) {
      file.resize(round_up(file.size(), alignment));
      file.insert(file.end(), tensor.data.begin(), tensor.data.end());
    }
    return file;
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type;
    Bytes data;
  };
  static std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
  }
  void entry(std::string_view key, std::uint32_t type) {
    append_text(entries_, key);
    append(entries_, type);
    ++num_entries_;
  }
  void array(std::string_view key, std::uint32_t type, std::uint64_t count) {
    entry(key, 9);
    append(entries_, type);
    append(entries_, count);
  }

  std::uint32_t version_;
  std::uint64_t num_entries_ = 0;
  Bytes entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace rigel::testing
