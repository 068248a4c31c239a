#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

/// Says once for each name that a field of a call is not known. Thread: any.
class UnknownFieldLog {
 public:
  /// `where`: a path or a file. Names beyond the first few hundred are not logged: a caller who invents names must fill
  /// neither memory nor log.
  void note(std::string_view where, const std::vector<std::string>& fields);

 private:
  std::mutex mutex_;
  std::set<std::string> noted_;
};

}  // namespace rigel::server
