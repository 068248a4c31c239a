#include "model/model_config.h"

#include "model/checkpoint/mapped_file.h"
#include "model/gguf_config.h"
#include "model/hugging_face_config.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rigel {
namespace {

using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::ScratchDirectory;

ModelConfig tiny(const std::string& name) {
  const std::string path = RIGEL_TEST_DATA "/tiny/" + name + "/config.json";
  return parse_hugging_face_config(read_text_file(path), path);
}

/// A small valid configuration with `extra` fields in front (the first of two equal names counts).
std::string config_json(std::string_view extra) {
  return "{" + std::string(extra) +
         R"("model_type":"llama","hidden_size":96,"num_hidden_layers":2,"num_attention_heads":6,)"
         R"("num_key_value_heads":2,"intermediate_size":224,"vocab_size":512})";
}

ModelConfig parse(std::string_view extra) {
  return parse_hugging_face_config(config_json(extra), "config.json");
}

std::string parse_error(std::string_view extra) {
  return message_of<ModelFileError>([&] { (void)parse(extra); });
}

TEST(HuggingFaceConfig, ReadsTheStyleOfTransformers5) {
  const ModelConfig config = tiny("llama-mha-bias");
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.hidden_size, 96);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_heads, 6);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate_size, 224);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.max_position_embeddings, 4096);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-6);
  EXPECT_TRUE(config.attention_bias && config.output_bias && config.mlp_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_FALSE(config.rope.interleaved);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(2));
  EXPECT_THAT(config.sliding_windows, ElementsAre(0, 0, 0));
}

TEST(HuggingFaceConfig, ReadsTheOlderStyleWithLlama3Scaling) {
  const ModelConfig config = tiny("llama-rope3-tied");
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.rope.low_freq_factor, 1.0);
  EXPECT_EQ(config.rope.high_freq_factor, 4.0);
  EXPECT_EQ(config.rope.original_max_position, 256);
}

TEST(HuggingFaceConfig, MistralHasAWindowInEveryLayerOrWhereLayerTypesSay) {
  const ModelConfig config = tiny("mistral-window");
  EXPECT_EQ(config.architecture, "mistral");
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_THAT(config.sliding_windows, ElementsAre(64, 64, 64));
  EXPECT_FALSE(config.attention_bias);
  const std::string mistral = R"("model_type":"mistral","sliding_window":8,)";
  EXPECT_THAT(
      parse(mistral + R"("layer_types":["full_attention","sliding_attention"],)").sliding_windows,
      ElementsAre(0, 8));
  EXPECT_THAT(parse(R"("model_type":"mistral","sliding_window":null,)").sliding_windows, Each(0));
  EXPECT_THAT(parse_error(mistral + R"("layer_types":["full_attention"],)"),
              HasSubstr("layer_types must be a list of num_hidden_layers = 2"));
  EXPECT_THAT(parse_error(R"("layer_types":["full_attention","sliding_attention"],)"),
              HasSubstr("without a sliding_window"));
}

TEST(HuggingFaceConfig, MissingFieldsTakeTransformersDefaults) {
  const ModelConfig config = parse("");
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-6);
  EXPECT_EQ(config.activation, Activation::kSilu);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.bos_id, std::nullopt);
  EXPECT_THAT(config.eos_ids, IsEmpty());
}

TEST(HuggingFaceConfig, ReadsYarnAndLinearScalingInBothStyles) {
  const RopeConfig yarn =
      parse(R"("max_position_embeddings":1024,"rope_theta":5000,"rope_scaling":{"type":"yarn",)"
            R"("original_max_position_embeddings":256,"beta_fast":16},)")
          .rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.factor, 4.0) << "the ratio of the contexts, where the file gives no factor";
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_EQ(yarn.theta, 5000.0);
  const RopeConfig linear =
      parse(R"("rope_parameters":{"rope_type":"linear","factor":3.0,"rope_theta":77.0,)"
            R"("partial_rotary_factor":0.5},)")
          .rope;
  EXPECT_EQ(linear.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 3.0);
  EXPECT_EQ(linear.theta, 77.0);
  EXPECT_EQ(linear.rotary_dim, 8);
}

TEST(HuggingFaceConfig, UnsupportedFeaturesNameFieldValueAndWhatIsSupported) {
  EXPECT_THAT(parse_error(R"("model_type":"qwen3",)"),
              AllOf(HasSubstr("config.json: model_type must be a supported architecture"),
                    HasSubstr("llama, mistral"), HasSubstr("qwen3")));
  EXPECT_THAT(parse_error(R"("architectures":["LlamaForSequenceClassification"],)"),
              AllOf(HasSubstr("LlamaForCausalLM"), HasSubstr("SequenceClassification")));
  EXPECT_THAT(parse_error(R"("rope_scaling":{"rope_type":"longrope","factor":2},)"),
              AllOf(HasSubstr("rope_scaling.rope_type must be default, linear, llama3 or yarn"),
                    HasSubstr("longrope")));
  EXPECT_THAT(parse_error(R"("hidden_act":"relu",)"),
              HasSubstr(R"(hidden_act must be silu, gelu_pytorch_tanh or gelu, got "relu")"));
  EXPECT_THAT(parse_error(R"("quantization_config":{"bits":4},)"),
              HasSubstr("quantization_config must be absent"));
}

TEST(HuggingFaceConfig, WrongTypesAndInconsistentExtentsAreRefused) {
  EXPECT_THAT(parse_error(R"("hidden_size":"96",)"),
              HasSubstr(R"(hidden_size must be an integer, got "96")"));
  EXPECT_THAT(parse_error(R"("hidden_size":0,)"), HasSubstr("hidden_size must be between 1 and"));
  EXPECT_THAT(parse_error(R"("hidden_size":99999999999,)"), HasSubstr("32 bits"));
  EXPECT_THAT(parse_error(R"("num_key_value_heads":4,)"), HasSubstr("must divide the 6"));
  EXPECT_THAT(parse_error(R"("head_dim":15,)"), HasSubstr("rotary dimension must be even"));
  EXPECT_THAT(parse_error(R"("num_hidden_layers":2000000000,)"), HasSubstr("number of layers"));
  EXPECT_THAT(parse_error(R"("eos_token_id":512,)"), HasSubstr("below vocab_size 512, got 512"));
  EXPECT_THAT(parse_error(R"("rope_scaling":{"rope_type":"llama3","factor":8},)"),
              HasSubstr("rope_scaling.low_freq_factor must be given"));
  EXPECT_THAT(message_of<ModelFileError>(
                  [] { (void)parse_hugging_face_config("{\"model_type\":\"llama\"}", "c"); }),
              HasSubstr("c: hidden_size must be given, got nothing"));
}

TEST(GenerationConfig, ReplacesTheEndOfSequenceIdsAndGivesDefaults) {
  ModelConfig config = parse(R"("eos_token_id":2,)");
  apply_generation_config(
      R"({"eos_token_id":[9,7,9],"temperature":0.6,"top_p":0.9,"top_k":40,"repetition_penalty":1.1})",
      "g.json", config);
  EXPECT_THAT(config.eos_ids, ElementsAre(7, 9));
  EXPECT_EQ(config.generation.temperature, 0.6);
  EXPECT_EQ(config.generation.top_p, 0.9);
  EXPECT_EQ(config.generation.top_k, 40);
  EXPECT_EQ(config.generation.repetition_penalty, 1.1);
  EXPECT_EQ(config.generation.min_p, std::nullopt);
  apply_generation_config("{}", "g.json", config);
  EXPECT_THAT(config.eos_ids, ElementsAre(7, 9));
  EXPECT_THAT(message_of<ModelFileError>(
                  [&] { apply_generation_config(R"({"top_p":1.5})", "g.json", config); }),
              HasSubstr("g.json: top_p must be above 0 and at most 1, got 1.5"));
}

GgufWriter llama_metadata() {
  GgufWriter writer(3);
  writer.text("general.architecture", "llama")
      .u32("llama.embedding_length", 96)
      .u32("llama.block_count", 2)
      .u32("llama.attention.head_count", 6)
      .u32("llama.attention.head_count_kv", 2)
      .u32("llama.feed_forward_length", 224)
      .u32("llama.context_length", 4096)
      .u32("llama.vocab_size", 512)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .f32("llama.rope.freq_base", 5e5F)
      .u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 9)
      .u32("tokenizer.ggml.eot_token_id", 7)
      .u32("tokenizer.ggml.eom_token_id", 9);
  return writer;
}

ModelConfig gguf_config(const GgufWriter& writer) {
  const ScratchDirectory directory;
  const GgufCheckpoint checkpoint(directory.write("m.gguf", writer.finish()));
  return gguf_model_config(checkpoint);
}

std::string config_error(const GgufWriter& writer) {
  return message_of<ModelFileError>([&] { (void)gguf_config(writer); });
}

TEST(GgufConfig, ReadsALlamaFile) {
  const ModelConfig config = gguf_config(llama_metadata());
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_FLOAT_EQ(static_cast<float>(config.rms_norm_epsilon), 1e-5F);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_TRUE(config.rope.interleaved);
  EXPECT_TRUE(config.tie_word_embeddings) << "there is no output.weight";
  EXPECT_FALSE(config.attention_bias || config.output_bias || config.mlp_bias);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(7, 9));
}

TEST(GgufConfig, ReadsOffTheTensorsWhatMetadataLeavesOut) {
  Bytes divisors;
  for (int i = 0; i < 8; ++i) {
    testing::append(divisors, static_cast<float>(i + 1));
  }
  GgufWriter writer = llama_metadata();
  writer.tensor("output.weight", {1}, 0, Bytes(4))
      .tensor("blk.0.attn_q.bias", {1}, 0, Bytes(4))
      .tensor("rope_freqs.weight", {8}, 0, divisors);
  const ModelConfig config = gguf_config(writer);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_THAT(config.rope.frequency_divisors, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  GgufWriter wrong = llama_metadata();
  wrong.tensor("rope_freqs.weight", {2}, 0, Bytes(8));
  EXPECT_THAT(config_error(wrong), HasSubstr("rope_freqs.weight must hold 8 factors, got 2"));
}

TEST(GgufConfig, ReadsYarnAndLinearScaling) {
  GgufWriter yarn = llama_metadata();
  yarn.text("llama.rope.scaling.type", "yarn")
      .f32("llama.rope.scaling.factor", 4.0F)
      .u32("llama.rope.scaling.original_context_length", 1024);
  const RopeConfig rope = gguf_config(yarn).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.original_max_position, 1024);
  GgufWriter legacy = llama_metadata();
  legacy.f32("llama.rope.scale_linear", 2.0F);
  EXPECT_EQ(gguf_config(legacy).rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(gguf_config(legacy).rope.factor, 2.0);
}

TEST(GgufConfig, UnsupportedFeaturesNameKeyAndValue) {
  GgufWriter other(3);
  other.text("general.architecture", "gemma3");
  EXPECT_THAT(config_error(other), AllOf(HasSubstr("general.architecture"), HasSubstr("gemma3"),
                                         HasSubstr("llama, mistral")));
  GgufWriter experts = llama_metadata();
  experts.u32("llama.expert_count", 8);
  EXPECT_THAT(config_error(experts), AllOf(HasSubstr("llama.expert_count"), HasSubstr("got 8")));
  GgufWriter scaling = llama_metadata();
  scaling.text("llama.rope.scaling.type", "longrope");
  EXPECT_THAT(config_error(scaling), HasSubstr("must be none, linear or yarn, got longrope"));
  GgufWriter lengths = llama_metadata();
  lengths.u32("llama.attention.value_length", 8);
  EXPECT_THAT(config_error(lengths), HasSubstr("value_length' must be the key length 16, got 8"));
  GgufWriter missing(3);
  missing.text("general.architecture", "llama");
  EXPECT_THAT(config_error(missing), HasSubstr("'llama.embedding_length' must be given"));
}

}  // namespace
}  // namespace rigel
