// docs/one-step.md is a map of the code: every function it names must be defined in a file of its row.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace rigel {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The cells of a row of the table.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream rest(line);
  for (std::string cell; std::getline(rest, cell, '|');) {
    cells.push_back(cell);
  }
  return cells;
}

/// The words of a cell without commas, blanks and backquotes.
std::vector<std::string> names_in(std::string cell) {
  for (char& letter : cell) {
    if (letter == ',' || letter == '`') {
      letter = ' ';
    }
  }
  std::istringstream words(cell);
  std::vector<std::string> names;
  for (std::string name; words >> name;) {
    names.push_back(name);
  }
  return names;
}

/// Whether a line that begins a definition has the function's name: a call is indented.
bool is_defined_in(const std::string& sources, const std::string& function) {
  std::istringstream lines(sources);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != ' ' && line.find(function + "(") != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST(OneStep, EveryFunctionOfTheMapIsDefinedInAFileOfItsRow) {
  const std::string root = std::string(RIGEL_TEST_DATA) + "/../../";
  std::istringstream map(contents(root + "docs/one-step.md"));
  int num_functions = 0;
  for (std::string line; std::getline(map, line);) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() < 4 || cells[1] == " stage " || cells[1] == "---") {
      continue;
    }
    std::string sources;
    for (const std::string& file : names_in(cells[3])) {
      const std::string source = contents(root + file);
      EXPECT_FALSE(source.empty()) << "no file " << file;
      sources += source;
    }
    for (const std::string& function : names_in(cells[2])) {
      EXPECT_TRUE(is_defined_in(sources, function))
          << function << " is not defined in the files of: " << line;
      ++num_functions;
    }
  }
  EXPECT_GT(num_functions, 20);
}

}  // namespace
}  // namespace rigel
