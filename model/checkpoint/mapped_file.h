#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace rigel {

/// A file mapped read-only into memory; move-only. Throws ModelFileError if it cannot be opened, is no regular file or is empty.
///
/// The mapping follows the file: whoever shortens the file while it is mapped makes later reads fault, as with any mapping.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// The text of a small file (JSON, a template). Throws ModelFileError if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::filesystem::path& path);

}  // namespace rigel
