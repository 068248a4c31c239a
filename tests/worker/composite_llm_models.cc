#include "tests/worker/composite_llm_models.h"

#include "kernels/embedding.h"
#include "model/language_model.h"
#include "model/language_model_walks.h"

#include <algorithm>
#include <utility>

namespace rigel::testing {

namespace {

using Llm = LanguageModelNames;

/// Gives token ids the embeddings that the language model itself would give them.
class TokenEncoder final : public NodeSubmodule {
 public:
  TokenEncoder(Device& device, const TransformerWeights& weights, const ModelConfig& config,
               SignalId tokens)
      : weights_(weights), config_(config), tokens_(tokens), allocator_(device) {}

  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView&) override {
    auto row = std::make_unique<NodeInputs>();
    row->tensor_inputs.emplace_back("tokens", context.signals->find(tokens_)->at(0));
    row->input_seq_len = row->tensor_inputs.front().second.dim(0);
    return row;
  }
  bool can_batch(const BatchColumns&) const override { return true; }
  void preprocess(const BatchColumns& batch, StepContext& context) override {
    columns_.clear();
    for (const NodeInputs* row : batch.inputs) {
      const auto ids = row->tensor_inputs.front().second.host_view().span<const std::int32_t>();
      const auto column = context.staging->column<std::int32_t>(std::ssize(ids));
      std::ranges::copy(ids, column.host.begin());
      columns_.push_back(column.device);
    }
  }
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    const StreamRef stream = inputs.context->stream();
    for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
      Tensor embeddings = allocator_.allocate(
          stream, Dtype::kF32, {inputs.inputs[lane]->input_seq_len, config_.hidden_size});
      kernels::embed(
          stream, embeddings.device_view(), columns_[lane],
          weights_.embedding.view(weights_.dtype, {config_.vocab_size, config_.hidden_size}),
          static_cast<float>(config_.embedding_scale));
      outputs.requests()[inputs.handles[lane]].assign(Llm::kEmbeddings, {std::move(embeddings)});
    }
  }

 private:
  const TransformerWeights& weights_;
  const ModelConfig& config_;
  SignalId tokens_;
  CachingAllocator allocator_;
  std::vector<ConstDeviceView> columns_;
};

/// Gives the client what it gets.
class TokenSink final : public NodeSubmodule {
 public:
  explicit TokenSink(SignalId heard) : heard_(heard) {}

  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView&) override {
    const TensorList* tokens = context.signals->find(Llm::kNewToken);
    if (tokens->empty()) {
      return nullptr;
    }
    auto row = std::make_unique<NodeInputs>();
    row->tensor_inputs.emplace_back("tokens", tokens->front());
    return row;
  }
  bool can_batch(const BatchColumns&) const override { return true; }
  void preprocess(const BatchColumns&, StepContext&) override {}
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
      outputs.requests()[inputs.handles[lane]].assign(
          heard_, {inputs.inputs[lane]->tensor_inputs.front().second});
    }
  }

 private:
  SignalId heard_;
};

walk::Definition definition(LlmPrompt prompt, const std::string& label) {
  using walk::Edge;
  // The first token of the decode loop is the prompt's own.
  const Edge kept{.signal = "new_token", .next_node = walk::kNowhere, .persist = true};
  const Edge to_client{.signal = "new_token",
                       .next_node = walk::kEmitToClient,
                       .counts_new_tokens = true,
                       .modality = walk::Modality::kText};
  const Edge to_sink{
      .signal = "new_token", .next_node = "sink", .is_streaming = true, .target_partition = "ears"};
  const Edge to_itself{.signal = "new_token", .next_node = "LLM"};
  const walk::Node encoder{.name = "encoder",
                           .inputs = {"tokens"},
                           .outputs = {{.signal = "embeddings", .next_node = "LLM"}}};
  const bool has_text = prompt == LlmPrompt::kBoth;
  const walk::Node looks{.name = "LLM", .inputs = {"embeddings"}, .outputs = {}};
  const walk::Node reads{.name = "LLM",
                         .inputs = {has_text ? "text_inputs" : "embeddings"},
                         .outputs = {kept, to_client, to_sink}};
  const walk::Node decodes{
      .name = "LLM", .inputs = {"new_token"}, .outputs = {to_itself, to_client, to_sink}};
  const walk::Node sink{.name = "sink",
                        .inputs = {"new_token"},
                        .outputs = {{.signal = "heard", .next_node = walk::kEmitToClient}},
                        .streaming_inputs = {"new_token"}};
  std::vector<walk::Walk> walks;
  std::vector<std::string> of_text = {"prefill", "decode"};
  if (has_text) {
    walks.push_back({"prefill", reads});
    walks.push_back({"look", walk::Sequential{{encoder, looks}}});
    of_text.insert(of_text.begin(), "look");
  } else {
    walks.push_back({"prefill", walk::Sequential{{encoder, reads}}});
  }
  walks.push_back({"decode", walk::Loop{.name = "decode_loop", .sections = {decodes}}});
  walks.push_back({"listen", walk::Loop{.name = "listening", .sections = {sink}}});
  const std::string first = of_text.front();
  std::vector<walk::CombinedWalks> combined;
  if (!label.empty()) {
    combined.push_back({.node = "LLM", .label = label, .walks = of_text});
  }
  return {.walks = std::move(walks),
          .partitions = {{.name = "text", .walks = std::move(of_text), .initial_walk = first},
                         {.name = "ears",
                          .walks = {"listen"},
                          .initial_walk = "listen",
                          .producer_partitions = {"text"}}},
          .connections = {{"text", "ears", "new_token", walk::FixedChunks{3}}},
          .combined = std::move(combined)};
}

}  // namespace

LlmComposite make_llm_composite(Device& device, const ModelFiles& files,
                                LanguageModelOptions options, LlmPrompt prompt,
                                const std::string& label) {
  LlmComposite composite;
  CompositeModel& model = composite.model;
  model.stream = std::make_unique<Stream>(device);
  walk::Names names;
  intern_language_model(names);
  for (const char* node : {"encoder", "sink"}) {
    names.nodes.intern(node);
  }
  const SignalId tokens = names.signals.intern("tokens");
  const SignalId heard = names.signals.intern("heard");
  model.program = walk::compile(definition(prompt, label), std::move(names));

  options.stream = model.stream->ref();
  LoadedLanguageModel loaded = load_language_model(device, files, options, nullptr);
  composite.max_length = loaded.max_length;
  composite.kv_cache = loaded.kv_cache;
  const TransformerWeights& weights =
      dynamic_cast<LanguageModel&>(loaded.engine->submodule()).weights();
  const EngineConfig config{.staging_bytes = 64 * 1024, .stream = model.stream->ref()};
  model.engines.push_back(std::move(loaded.engine));
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<TokenEncoder>(device, weights, files.config, tokens),
      NodeResources(), config));
  model.engines.push_back(std::make_unique<Engine>(device, std::make_unique<TokenSink>(heard),
                                                   NodeResources(), config));
  return composite;
}

}  // namespace rigel::testing
