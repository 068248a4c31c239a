#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace rigel::server {
namespace {

using testing::ElementsAre;

TEST(Config, ReadsSizesWithUnits) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("123"), 123);
  EXPECT_EQ(parse_size("4K"), 4096);
  EXPECT_EQ(parse_size("1.5g"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_size("2GiB"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_size("512MB"), std::int64_t{512} << 20);
  for (const char* wrong : {"", "G", "-1", "1X", "1 G", "1GG", "nan", "1e30G"}) {
    EXPECT_THROW(static_cast<void>(parse_size(wrong)), std::invalid_argument) << wrong;
  }
}

/// A file that lives as long as the object.
struct ConfigFile {
  explicit ConfigFile(const std::string& text)
      : path(testing::TempDir() + "rigel_config_" + std::to_string(::getpid()) + ".yaml") {
    std::ofstream(path) << text;
  }
  ~ConfigFile() { ::unlink(path.c_str()); }
  std::string path;
};

TEST(Config, TakesOptionsFromAYamlFileUnlessTheCommandLineHasThem) {
  const ConfigFile file(
      "model: m.gguf\nmax_num_seqs: 8\nport: 9000\nenforce-eager: true\nconcurrency: [1, 8]\nseed: "
      "null\n");
  std::vector<std::string> arguments = {"serve", "--config", file.path, "--port=8001"};
  merge_config_file(arguments);
  EXPECT_THAT(arguments,
              ElementsAre("serve", "--config", file.path, "--port=8001", "--model=m.gguf",
                          "--max-num-seqs=8", "--enforce-eager=true", "--concurrency=1,8"));
}

TEST(Config, SaysWhatIsWrongWithAFile) {
  for (const char* text : {"- a\n- b\n", "a: [", "device: {a: 1}\n"}) {
    const ConfigFile file(text);
    std::vector<std::string> arguments = {"serve", "--config=" + file.path};
    try {
      merge_config_file(arguments);
      FAIL() << text;
    } catch (const std::invalid_argument& problem) {
      EXPECT_THAT(problem.what(), testing::HasSubstr(file.path));
    }
  }
  std::vector<std::string> missing = {"serve", "--config", "/no/such/file"};
  EXPECT_THROW(merge_config_file(missing), std::invalid_argument);
}

TEST(Config, ReadsTheEnvironmentOfTheVirtualDevice) {
  ::setenv("RIGEL_SIMT", "rms_norm,rope", 1);
  ::setenv("SIMT_ORDER", "random", 1);
  ::setenv("SIMT_SEED", "42", 1);
  WorkerOptions options;
  read_environment(options);
  EXPECT_THAT(options.device_texts, ElementsAre("rms_norm", "rope"));
  EXPECT_EQ(options.launch_order, "random");
  EXPECT_EQ(options.launch_seed, 42u);
  ::setenv("SIMT_ORDER", "sideways", 1);
  EXPECT_THROW(read_environment(options), std::invalid_argument);
  ::unsetenv("SIMT_ORDER");
  ::setenv("SIMT_SEED", "4x", 1);
  EXPECT_THROW(read_environment(options), std::invalid_argument);
  ::unsetenv("SIMT_SEED");
  ::unsetenv("RIGEL_SIMT");
}

}  // namespace
}  // namespace rigel::server
