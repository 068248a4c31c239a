#include "model/checkpoint/weight_reader.h"

#include "model/checkpoint/gguf.h"
#include "model/checkpoint/safetensors.h"
#include "model/model_files.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace rigel {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::message_of;
using testing::ScratchDirectory;

TEST(WeightNames, EveryKindHasANameInEachVocabulary) {
  EXPECT_EQ(canonical_name(WeightKind::kQ, 3), "layers.3.attention.q.weight");
  EXPECT_EQ(source_name(CheckpointFormat::kGguf, WeightKind::kQ, 3), "blk.3.attn_q.weight");
  EXPECT_EQ(source_name(CheckpointFormat::kHuggingFace, WeightKind::kQ, 3),
            "model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(canonical_name(WeightKind::kEmbedding, kNoLayer), "embedding.weight");
  EXPECT_EQ(source_name(CheckpointFormat::kGguf, WeightKind::kLmHead, kNoLayer), "output.weight");
  EXPECT_THROW((void)canonical_name(WeightKind::kQ, kNoLayer), CheckError);
  EXPECT_THROW((void)canonical_name(WeightKind::kLmHead, 0), CheckError);
}

/// Asks for every weight the configuration implies, as a model would.
void require_all(WeightReader& reader, const ModelConfig& config) {
  for (int index = 0; index <= static_cast<int>(WeightKind::kDownBias); ++index) {
    const auto kind = static_cast<WeightKind>(index);
    const bool is_qkv_bias = kind >= WeightKind::kQBias && kind <= WeightKind::kVBias;
    const bool is_norm = kind == WeightKind::kQNorm || kind == WeightKind::kKNorm;
    if ((kind == WeightKind::kLmHead && config.tie_word_embeddings) ||
        (is_qkv_bias && !config.attention_bias) || (is_norm && !config.qk_norm) ||
        (kind == WeightKind::kOBias && !config.output_bias) ||
        (kind >= WeightKind::kGateBias && !config.mlp_bias)) {
      continue;
    }
    for (int layer = 0; layer < (is_layer_weight(kind) ? config.num_layers : 1); ++layer) {
      (void)reader.require(kind, is_layer_weight(kind) ? layer : kNoLayer);
    }
  }
}

TEST(WeightReader, FindsEveryWeightOfTheTinyModelsAndLeavesNoneUnused) {
  for (const char* name :
       {"llama-untied", "llama-rope3-tied", "llama-mha-bias", "mistral-window"}) {
    const ModelFiles files = open_model_files(std::string(RIGEL_TEST_DATA "/tiny/") + name);
    WeightReader reader(*files.checkpoint, files.config, nullptr);
    require_all(reader, files.config);
    EXPECT_THAT(reader.unused(), ElementsAre()) << name;
  }
}

struct Recorder : LoadProgress {
  std::vector<std::int64_t> done;
  std::int64_t total = 0;
  void advance(std::int64_t bytes_done, std::int64_t bytes_total) override {
    done.push_back(bytes_done);
    total = bytes_total;
  }
};

ModelConfig small_config() {
  ModelConfig config;
  config.hidden_size = 2;
  config.num_layers = 1;
  config.num_heads = config.num_kv_heads = 1;
  config.head_dim = 2;
  config.intermediate_size = 3;
  config.vocab_size = 2;
  return config;
}

Bytes floats(std::initializer_list<float> values) {
  Bytes bytes;
  for (const float value : values) {
    testing::append(bytes, value);
  }
  return bytes;
}

GgufWriter small_file() {
  GgufWriter writer(3);
  writer.tensor("token_embd.weight", {2, 2}, 0, floats({1, 2, 3, 4}))
      .tensor("output_norm.weight", {2}, 0, floats({5, 6}))
      .tensor("blk.0.attn_q.weight", {2, 3}, 0, floats({1, 2, 3, 4, 5, 6}))
      .tensor("rope_freqs.weight", {1}, 0, floats({1}))
      .tensor("blk.0.strange.weight", {1}, 0, floats({1}));
  return writer;
}

TEST(WeightReader, ReadsWeightsAndReportsProgressAndUnusedTensors) {
  const ScratchDirectory directory;
  const GgufCheckpoint checkpoint(directory.write("m.gguf", small_file().finish()));
  const ModelConfig config = small_config();
  Recorder recorder;
  WeightReader reader(checkpoint, config, &recorder);
  std::vector<float> embedding(4);
  reader.read(WeightKind::kEmbedding, kNoLayer, host_view(std::span(embedding)));
  EXPECT_THAT(embedding, ElementsAre(1, 2, 3, 4));
  std::vector<bf16> norm(2);
  reader.read(WeightKind::kFinalNorm, kNoLayer, host_view(std::span(norm)));
  EXPECT_EQ(static_cast<float>(norm[1]), 6.0F);
  std::vector<float> row(2);
  reader.read_rows(reader.require(WeightKind::kEmbedding), 1, 1, host_view(std::span(row)));
  EXPECT_THAT(row, ElementsAre(3, 4));
  EXPECT_THAT(recorder.done, ElementsAre(16, 24, 32));
  EXPECT_EQ(recorder.total, 16 + 8 + 24 + 4) << "nobody reads rope_freqs";
  EXPECT_THAT(reader.unused(), ElementsAre("blk.0.attn_q.weight", "blk.0.strange.weight"));
}

TEST(WeightReader, ATiedEmbeddingIsReadTwiceAndCountedTwice) {
  const ScratchDirectory directory;
  const GgufCheckpoint checkpoint(directory.write("m.gguf", small_file().finish()));
  ModelConfig config = small_config();
  config.tie_word_embeddings = true;
  Recorder recorder;
  WeightReader reader(checkpoint, config, &recorder);
  std::vector<float> norm(2);
  reader.read(WeightKind::kFinalNorm, kNoLayer, host_view(std::span(norm)));
  EXPECT_EQ(recorder.total, 2 * 16 + 8 + 24 + 4);
}

TEST(WeightReader, AMissingWeightAndAWrongShapeAreNamedWithWhatIsExpected) {
  const ScratchDirectory directory;
  const GgufCheckpoint checkpoint(directory.write("m.gguf", small_file().finish()));
  const ModelConfig config = small_config();
  WeightReader reader(checkpoint, config, nullptr);
  EXPECT_FALSE(reader.has(WeightKind::kDown, 0));
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)reader.require(WeightKind::kDown, 0); }),
              AllOf(HasSubstr("layers.0.mlp.down.weight"), HasSubstr("'blk.0.ffn_down.weight'"),
                    HasSubstr("(2, 3)")));
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)reader.require(WeightKind::kQ, 0); }),
              AllOf(HasSubstr("'blk.0.attn_q.weight'"), HasSubstr("must have shape (2, 2)"),
                    HasSubstr("got (3, 2)")));
}

}  // namespace
}  // namespace rigel
