// Commands as they are typed: what they print and how they end.

#include "server/commands/commands.h"

#include "server/command_line.h"
#include "server/commands/generate_lines.h"
#include "server/commands/json_lines.h"
#include "tensor/device.h"
#include "tests/model/scratch_directory.h"
#include "tests/server/fake_service.h"
#include "tests/test_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace rigel::server {
namespace {

using Json = nlohmann::json;
using rigel::testing::ScratchDirectory;
using rigel::testing::test_data;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

struct Ending {
  int exit_code = 0;
  std::vector<Json> lines;  // of stdout
  std::string messages;     // of stderr
};

template <typename Command>
Ending run(const Command& command) {
  Ending ending;
  CaptureStdout();
  CaptureStderr();
  ending.exit_code = command();
  ending.messages = GetCapturedStderr();
  std::istringstream out(GetCapturedStdout());
  for (std::string line; std::getline(out, line);) {
    ending.lines.push_back(Json::parse(line));
  }
  return ending;
}

Ending run_program(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "rigel");
  return run(
      [&] { return run_command_line(static_cast<int>(arguments.size()), arguments.data()); });
}

TEST(CommandLine, NamesAWordThatIsNoCommand) {
  const Ending program = run_program({"nosuch"});
  EXPECT_EQ(program.exit_code, kWrongUsage);
  EXPECT_THAT(program.messages, AllOf(HasSubstr("'nosuch'"), HasSubstr("tokenize")));
  const Ending bench = run_program({"bench", "nosuch"});
  EXPECT_EQ(bench.exit_code, kWrongUsage);
  EXPECT_THAT(bench.messages, AllOf(HasSubstr("'nosuch'"), HasSubstr("throughput, step")));
  const Ending nothing = run_program({});
  EXPECT_EQ(nothing.exit_code, kWrongUsage);
  EXPECT_THAT(nothing.messages, HasSubstr("subcommand is required"));
}

TEST(CommandLine, RefusesMeasurementsThatThisBuildLacks) {
  for (const char* name : {"latency", "serve", "kernels", "load"}) {
    const Ending ending = run_program({"bench", name, "MODEL", "--json"});
    EXPECT_EQ(ending.exit_code, kWrongUsage);
    EXPECT_THAT(ending.messages, AllOf(HasSubstr(name), HasSubstr("not available in this build")));
  }
}

TEST(CommandLine, TakesOptionsThatSpellOutWhatThisBuildDoes) {
  const auto exit_code = [](std::vector<const char*> options) {
    options.insert(options.begin(), {"inspect", "/no/such/model"});
    return run_program(options).exit_code;
  };
  EXPECT_EQ(exit_code({"--steps-per-launch", "1", "--max-consecutive-steps", "1", "--yield-hold-ms",
                       "0", "--no-early-speculation"}),
            kFailed)
      << "there is no such model, but the usage is right";
  EXPECT_EQ(exit_code({"--steps-per-launch", "17"}), kWrongUsage);
  EXPECT_EQ(exit_code({"--max-consecutive-steps", "1024"}), kWrongUsage);
  EXPECT_EQ(exit_code({"--yield-hold-ms", "5"}), kWrongUsage);
}

TEST(JsonLines, HaveAnAnswerEachThoughBlankAndNoneBehindTheLast) {
  const ScratchDirectory directory;
  const auto file =
      directory.write("lines.jsonl", "\n{\"prompt\": \"x\"}\n \t\r\n{\"prompt\": \"y\"}\n\n  \n");
  FakeService service;
  const FakeCodec codec;
  const Ending ending =
      run([&] { return generate_lines(read_json_lines(file.string()), codec, service); });
  EXPECT_EQ(ending.exit_code, kFailed);
  ASSERT_EQ(ending.lines.size(), 4u);
  for (const std::size_t blank : {0, 2}) {
    EXPECT_EQ(ending.lines[blank]["error"]["message"], "the line is empty");
    EXPECT_EQ(ending.lines[blank]["error"]["param"], nullptr);
  }
  EXPECT_EQ(ending.lines[1]["choices"][0]["text"], "Hello, world");
  EXPECT_EQ(ending.lines[3]["prompt_ids"], Json({1, 'y'}));
}

TEST(JsonLines, RefuseStopStringsOfAModelWithoutTokenizer) {
  const ScratchDirectory directory;
  const auto file = directory.write("lines.jsonl", R"({"prompt_ids": [97], "stop": ["x"]})");
  FakeService service;
  FakeCodec codec;
  codec.with_tokenizer = false;
  const Ending ending =
      run([&] { return generate_lines(read_json_lines(file.string()), codec, service); });
  EXPECT_EQ(ending.exit_code, kFailed);
  EXPECT_EQ(ending.lines.at(0)["error"]["param"], "stop");
}

TEST(JsonLines, OfADirectoryAreAFailure) {
  const ScratchDirectory directory;
  for (const char* command : {"generate", "score"}) {
    const Ending ending =
        run_program({command, "/no/such/model", "--jsonl", directory.path().c_str()});
    EXPECT_EQ(ending.exit_code, kFailed);
    EXPECT_THAT(ending.messages, AllOf(HasSubstr("--jsonl"), HasSubstr("is a directory")));
  }
}

TEST(TextCommands, NeedNoMoreThanAVocabulary) {
  const ScratchDirectory directory;
  const std::string vocabulary = test_data() / "text/vocab/ggml-vocab-gpt-2.gguf";
  const auto text = directory.write("text.jsonl", R"({"text": "Hello world"})");
  const Ending ids = run_program({"tokenize", vocabulary.c_str(), "--jsonl", text.c_str()});
  EXPECT_EQ(ids.exit_code, kDone) << ids.messages;
  EXPECT_EQ(ids.lines.at(0)["ids"], Json({15496, 995}));
  const auto back = directory.write("ids.jsonl", ids.lines[0].dump());
  EXPECT_EQ(
      run_program({"detokenize", vocabulary.c_str(), "--jsonl", back.c_str()}).lines.at(0)["text"],
      "Hello world");
}

TEST(Score, NamesTheFieldThatTheLineHas) {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
  const ScratchDirectory directory;
  const std::string long_ids = Json(std::vector<int>(40, 5)).dump();
  const auto lines = directory.write(
      "lines.jsonl", "{\"text\": \"x\"}\n{\"ids\": " + long_ids + "}\n{\"ids\": [1, 2]}\n\n{}");
  const std::string model = test_data() / "tiny/llama-untied";
  const Ending ending =
      run_program({"score", model.c_str(), "--jsonl", lines.c_str(), "--max-model-len", "32",
                   "--kv-cache-memory-bytes", "8M", "--threads", "1"});
  EXPECT_EQ(ending.exit_code, kFailed);
  ASSERT_EQ(ending.lines.size(), 5u) << ending.messages;
  EXPECT_EQ(ending.lines[0]["error"]["param"], "text") << "the model has no tokenizer";
  EXPECT_EQ(ending.lines[1]["error"]["param"], "ids");
  EXPECT_THAT(ending.lines[1]["error"]["message"].get<std::string>(),
              AllOf(HasSubstr("ids must"), HasSubstr("32"), HasSubstr("40")));
  EXPECT_EQ(ending.lines[2]["logprobs"].size(), 1u);
  EXPECT_EQ(ending.lines[3]["error"]["param"], nullptr);
  EXPECT_EQ(ending.lines[4]["error"]["param"], "ids");
}

}  // namespace
}  // namespace rigel::server
