#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <stdexcept>

namespace rigel::server {
namespace {

using ::testing::ElementsAre;

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
      : path(::testing::TempDir() + "rigel_config_" + std::to_string(::getpid()) + ".yaml") {
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
  EXPECT_THAT(arguments, ElementsAre("serve", "--config", file.path, "--port=8001",
                                     "--model=m.gguf", "--max-num-seqs=8", "--enforce-eager=true",
                                     "--concurrency=1", "--concurrency=8"));
}

TEST(Config, AListGivesItsOptionOnceAnItem) {
  const ConfigFile file("stop: [one, 'two, three']\napi_key: key\ncapture-sizes: []\n");
  std::vector<std::string> arguments = {"--config", file.path};
  merge_config_file(arguments);
  EXPECT_THAT(arguments, ElementsAre("--config", file.path, "--stop=one", "--stop=two, three",
                                     "--api-key=key"));
}

TEST(Config, TheCommandLinesNegationComesBeforeTheFilesOptionAndTheOtherWayRound) {
  const ConfigFile file(
      "enable_prefix_caching: true\nno-async-scheduling: true\nno_preplan: true\nseed: 3\n");
  std::vector<std::string> arguments = {"--config", file.path, "--no-enable-prefix-caching",
                                        "--async-scheduling"};
  merge_config_file(arguments);
  EXPECT_THAT(arguments, ElementsAre("--config", file.path, "--no-enable-prefix-caching",
                                     "--async-scheduling", "--no-preplan=true", "--seed=3"));
}

TEST(Config, SaysWhatIsWrongWithAFile) {
  for (const char* text :
       {"- a\n- b\n", "a: [", "device: {a: 1}\n", "device: {}\n", "stop: [[a], b]\n"}) {
    const ConfigFile file(text);
    std::vector<std::string> arguments = {"serve", "--config=" + file.path};
    try {
      merge_config_file(arguments);
      FAIL() << text;
    } catch (const std::invalid_argument& problem) {
      EXPECT_THAT(problem.what(), ::testing::HasSubstr(file.path));
    }
  }
  std::vector<std::string> missing = {"serve", "--config", "/no/such/file"};
  EXPECT_THROW(merge_config_file(missing), std::invalid_argument);
}

TEST(Config, ReadsTheEnvironmentOfTheVirtualDevice) {
  ::setenv("RIGEL_SIMT", "rms_norm,rotary", 1);
  ::setenv("SIMT_ORDER", "random", 1);
  ::setenv("SIMT_SEED", "42", 1);
  WorkerOptions options;
  read_environment(options);
  EXPECT_THAT(options.device_texts, ElementsAre("rms_norm", "rotary"));
  EXPECT_EQ(options.launch_order, "random");
  EXPECT_EQ(options.launch_seed, 42u);
  ::setenv("SIMT_ORDER", "sideways", 1);
  EXPECT_THROW(read_environment(options), std::invalid_argument);
  ::unsetenv("SIMT_ORDER");
  ::setenv("SIMT_SEED", "4x", 1);
  EXPECT_THROW(read_environment(options), std::invalid_argument);
  ::unsetenv("SIMT_SEED");
  for (const char* wrong : {"nosuch", "rms_norm,nosuch", "all,rms_norm"}) {
    ::setenv("RIGEL_SIMT", wrong, 1);
    EXPECT_THROW(read_environment(options), std::invalid_argument) << wrong;
  }
  ::setenv("RIGEL_SIMT", "all", 1);
  read_environment(options);
  EXPECT_EQ(options.device_texts.back(), "all");
  ::unsetenv("RIGEL_SIMT");
}

TEST(Config, KnowsEveryOperationThatHasANativeVariant) {
  const std::filesystem::path folder = std::filesystem::path(RIGEL_TEST_DATA) / "../../kernels";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "the sources are not here";
  }
  const std::regex launch(R"(launch_(native|add|rotary)(<[^;()]*>)?\(\s*stream,\s*"([a-z_]+)\")");
  std::set<std::string> found = {"gemm"};  // asks by itself
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") {
      continue;
    }
    std::ifstream in(entry.path());
    const std::string source{std::istreambuf_iterator<char>(in), {}};
    for (std::sregex_iterator it(source.begin(), source.end(), launch), end; it != end; ++it) {
      found.insert((*it)[3]);
    }
  }
  const auto names = device_text_names();
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.end()),
              ::testing::ElementsAreArray(found));
}

}  // namespace
}  // namespace rigel::server
