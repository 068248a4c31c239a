#include "model/checkpoint/mapped_file.h"

#include "model/model_file_error.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace rigel {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action, int error) {
  throw ModelFileError(fmt::format("{}: cannot {}: {}", path.string(), action,
                                   std::generic_category().message(error)));
}

/// Closes on every way out; a mapping outlives its descriptor.
struct Descriptor {
  int number;
  ~Descriptor() { ::close(number); }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (number < 0) {
    fail(path, "open it", errno);
  }
  const Descriptor descriptor{number};
  struct stat status {};
  if (::fstat(descriptor.number, &status) != 0) {
    fail(path, "read its size", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw ModelFileError(fmt::format("{}: not a regular file", path.string()));
  }
  if (status.st_size == 0) {
    throw ModelFileError(fmt::format("{}: the file is empty", path.string()));
  }
  const auto num_bytes = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
  if (address == MAP_FAILED) {
    fail(path, "map it into memory", errno);
  }
  bytes_ = {static_cast<const std::byte*>(address), num_bytes};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) {
    throw ModelFileError(fmt::format("{}: cannot read it", path.string()));
  }
  return text;
}

}  // namespace rigel
