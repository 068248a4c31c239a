#include "simt/options.h"

namespace simt {

bool wants_device_text(const Options& options, std::string_view name) {
  std::string_view rest = options.device_texts;
  if (rest.empty()) {
    return false;
  }
  if (rest == "all") {
    return true;
  }
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    if (rest.substr(0, comma) == name) {
      return true;
    }
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace simt
