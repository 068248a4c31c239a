#include "server/config.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace rigel::server {
namespace {

constexpr double kMaxSizeBytes = 9e18;

/// The number of bytes that a unit stands for; 0 if it is none.
double unit_bytes(std::string_view unit) {
  if (unit.empty()) {
    return 1.0;
  }
  const std::size_t power = std::string_view("KMGT").find(unit.front() & ~0x20);  // either case
  const std::string_view rest = unit.substr(1);
  const bool is_unit =
      power != std::string_view::npos && (rest.empty() || rest == "B" || rest == "iB");
  return is_unit ? std::pow(1024.0, static_cast<double>(power + 1)) : 0.0;
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

bool gives(const std::vector<std::string>& arguments, const std::string& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == option || argument.starts_with(option + "=");
  });
}

/// The FILE of --config FILE or --config=FILE; empty if there is none.
std::string config_path(const std::vector<std::string>& arguments) {
  constexpr std::string_view kOption = "--config";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kOption) {
      return i + 1 < arguments.size() ? arguments[i + 1] : "";
    }
    if (arguments[i].starts_with("--config=")) {
      return arguments[i].substr(kOption.size() + 1);
    }
  }
  return {};
}

/// A scalar, or a list's scalars with commas between.
std::string value_text(const YAML::Node& node, const std::string& path, const std::string& key) {
  if (node.IsScalar()) {
    return node.Scalar();
  }
  if (!node.IsSequence()) {
    throw std::invalid_argument(
        fmt::format("{}: {} must be a value or a list of values", path, key));
  }
  std::string text;
  for (const YAML::Node& item : node) {
    text += (text.empty() ? "" : ",") + value_text(item, path, key);
  }
  return text;
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread starts
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::int64_t parse_size(std::string_view text) {
  double number = -1.0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const double unit = problem == std::errc{}
                          ? unit_bytes(text.substr(static_cast<std::size_t>(end - text.data())))
                          : 0.0;
  if (unit == 0.0 || !(number >= 0.0) || number * unit > kMaxSizeBytes) {
    throw std::invalid_argument(
        fmt::format("a size must be a number of bytes, perhaps with K, M, G or T, got '{}'", text));
  }
  return static_cast<std::int64_t>(number * unit);
}

void merge_config_file(std::vector<std::string>& arguments) {
  const std::string path = config_path(arguments);
  if (path.empty()) {
    return;
  }
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::Exception& problem) {
    throw std::invalid_argument(fmt::format("--config {}: {}", path, problem.what()));
  }
  if (root.IsNull()) {
    return;
  }
  if (!root.IsMap()) {
    throw std::invalid_argument(fmt::format("--config {}: must be a map of options", path));
  }
  for (const auto& entry : root) {
    const std::string option = option_name(entry.first.Scalar());
    if (option == "--config" || entry.second.IsNull() || gives(arguments, option)) {
      continue;
    }
    arguments.push_back(
        fmt::format("{}={}", option, value_text(entry.second, path, entry.first.Scalar())));
  }
}

void read_environment(WorkerOptions& options) {
  if (const char* operations = environment("RIGEL_SIMT")) {
    const std::string_view list = operations;
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      if (comma > at) {
        options.device_texts.emplace_back(list.substr(at, comma - at));
      }
      at = comma + 1;
    }
  }
  if (const char* order = environment("SIMT_ORDER")) {
    options.launch_order = order;
    if (options.launch_order != "ascending" && options.launch_order != "descending" &&
        options.launch_order != "random") {
      throw std::invalid_argument(
          fmt::format("SIMT_ORDER must be ascending, descending or random, got '{}'", order));
    }
  }
  if (const char* seed = environment("SIMT_SEED")) {
    const std::string_view digits = seed;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), options.launch_seed);
    if (problem != std::errc{} || end != digits.data() + digits.size()) {
      throw std::invalid_argument(
          fmt::format("SIMT_SEED must be an unsigned integer, got '{}'", seed));
    }
  }
}

}  // namespace rigel::server
