#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace rigel::testing {

/// A directory for one test, removed with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rigel_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  std::filesystem::path write(std::string_view name, std::span<const std::byte> content) const {
    std::string text(content.size(), '\0');
    for (std::size_t i = 0; i < content.size(); ++i) {
      text[i] = static_cast<char>(content[i]);
    }
    return write(name, text);
  }

 private:
  std::filesystem::path path_;
};

/// The message of the exception that `action` throws, or "nothing thrown". Use with HasSubstr.
template <class Exception, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace rigel::testing
