// docs/one-step.md is a map of the code: every function it names must stand in a file it names.

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace rigel {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OneStep, EveryFunctionOfTheMapStandsInAFileOfItsRow) {
  const std::string root = std::string(RIGEL_TEST_DATA) + "/../../";
  std::istringstream map(contents(root + "docs/one-step.md"));
  const std::regex function_name("`([A-Za-z_:]+)`");
  const std::regex file_name("([a-z_]+/[a-z_/]+\\.cc)");
  int num_functions = 0;
  for (std::string line; std::getline(map, line);) {
    if (line.rfind("| ", 0) != 0 || line.find(".cc") == std::string::npos) {
      continue;
    }
    std::string sources;
    for (std::sregex_iterator file(line.begin(), line.end(), file_name), end; file != end; ++file) {
      const std::string source = contents(root + file->str(1));
      EXPECT_FALSE(source.empty()) << "no file " << file->str(1);
      sources += source;
    }
    for (std::sregex_iterator function(line.begin(), line.end(), function_name), end;
         function != end; ++function) {
      EXPECT_NE(sources.find(function->str(1) + "("), std::string::npos)
          << function->str(1) << " is not in the files of: " << line;
      ++num_functions;
    }
  }
  EXPECT_GT(num_functions, 20);
}

}  // namespace
}  // namespace rigel
