#include "server/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
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

/// What an option is about: --no-x and --x switch the same thing.
std::string_view without_negation(std::string_view option) {
  constexpr std::string_view kNegation = "--no-";
  return option.substr(option.starts_with(kNegation) ? kNegation.size() : 2);
}

/// Whether the command line has the option, or its negation, or what it negates.
bool gives(const std::vector<std::string>& arguments, std::string_view option) {
  const auto is_it = [wanted = without_negation(option)](std::string_view argument) {
    return argument.starts_with("--") &&
           without_negation(argument.substr(0, argument.find('='))) == wanted;
  };
  return std::any_of(arguments.begin(), arguments.end(), is_it);
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

/// A scalar, or a list's scalars: an option that may be given several times is given once an item.
std::vector<std::string> value_texts(const YAML::Node& node, const std::string& path,
                                     const std::string& key) {
  if (node.IsScalar()) {
    return {node.Scalar()};
  }
  bool is_list = node.IsSequence();
  std::vector<std::string> texts;
  for (std::size_t i = 0; is_list && i < node.size(); ++i) {
    is_list = node[i].IsScalar();
    texts.push_back(node[i].Scalar());
  }
  if (!is_list) {
    throw std::invalid_argument(
        fmt::format("{}: {} must be a value or a list of values", path, key));
  }
  return texts;
}

void check_device_text(std::string_view name, std::string_view list) {
  const bool is_all = name == "all" && list == "all";
  if (!is_all && std::ranges::find(device_text_names(), name) == device_text_names().end()) {
    throw std::invalid_argument(
        fmt::format("RIGEL_SIMT must be all or names of operations with commas between ({}), got "
                    "'{}'",
                    fmt::join(device_text_names(), ", "), name));
  }
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread starts
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::span<const std::string_view> device_text_names() {
  // As they are launched: what has a native variant beside its device text, and the matrix product.
  static constexpr std::string_view kNames[] = {"add",
                                                "add_rms_norm",
                                                "add_to_residual",
                                                "apply_penalties",
                                                "argmax",
                                                "attend_decode",
                                                "attend_prefill",
                                                "copy_pages",
                                                "embed",
                                                "end_turn",
                                                "gate",
                                                "gather_rows",
                                                "gemm",
                                                "head_rms_norm",
                                                "log_probs",
                                                "materialize_rows",
                                                "publish_tokens",
                                                "rms_norm",
                                                "rotary",
                                                "rotary_angles",
                                                "rotary_append_kv",
                                                "sample",
                                                "select_tokens",
                                                "splice_rows",
                                                "stop_copy"};
  return kNames;
}

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
  if (std::filesystem::is_directory(path)) {
    throw std::invalid_argument(fmt::format("--config {}: is a directory", path));
  }
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
  std::vector<std::string> of_file;
  for (const auto& entry : root) {
    const std::string option = option_name(entry.first.Scalar());
    if (option == "--config" || entry.second.IsNull() || gives(arguments, option)) {
      continue;
    }
    for (const std::string& value : value_texts(entry.second, path, entry.first.Scalar())) {
      of_file.push_back(fmt::format("{}={}", option, value));
    }
  }
  arguments.insert(arguments.end(), of_file.begin(), of_file.end());
}

void read_environment(WorkerOptions& options) {
  if (const char* operations = environment("RIGEL_SIMT")) {
    const std::string_view list = operations;
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      if (comma > at) {
        const std::string_view name = list.substr(at, comma - at);
        check_device_text(name, list);
        options.device_texts.emplace_back(name);
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
