#include "model/language_model_walks.h"

#include "model/language_model_names.h"
#include "tensor/error.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace rigel {

namespace {

using Names = LanguageModelNames;

constexpr const char* kTextInputs = "text_inputs";
constexpr const char* kNewToken = "new_token";
constexpr const char* kEmbeddings = "embeddings";

template <class Id>
void intern(NameTable<Id>& table, std::string_view name, Id expected) {
  RIGEL_CHECK(table.intern(name) == expected, "'{}' is not id {} of its kind", name,
              static_cast<int>(expected));
}

}  // namespace

walk::Definition language_model_definition() {
  const walk::Edge to_client{
      .signal = kNewToken, .next_node = walk::kEmitToClient, .modality = walk::Modality::kText};
  const walk::Edge to_itself{
      .signal = kNewToken, .next_node = Names::kNodeName, .input = kTextInputs};
  const walk::Node prefill{
      .name = Names::kNodeName, .inputs = {kTextInputs}, .outputs = {to_client}};
  const walk::Node decode{
      .name = Names::kNodeName, .inputs = {kTextInputs}, .outputs = {to_itself, to_client}};
  return {
      .walks = {{"prefill", prefill},
                {"decode", walk::Loop{.name = "decode_loop", .sections = {decode}}}},
      .partitions = {{.name = "text", .walks = {"prefill", "decode"}, .initial_walk = "prefill"}},
      .connections = {}};
}

void intern_language_model(walk::Names& names) {
  intern(names.nodes, Names::kNodeName, Names::kNode);
  intern(names.partitions, "text", Names::kPartition);
  intern(names.walks, "prefill", Names::kPrefill);
  intern(names.walks, "decode", Names::kDecode);
  intern(names.walks, "mixed", Names::kMixed);  // no walk of its own: steps of both
  intern(names.loops, "decode_loop", Names::kDecodeLoop);
  intern(names.signals, kTextInputs, Names::kTextInputs);
  intern(names.signals, kNewToken, Names::kNewToken);
  // What stands in rows and staging blocks alone has no other use as a name.
  for (int signal = static_cast<int>(Names::kNewToken) + 1; signal < Names::kNumSignals; ++signal) {
    const auto id = static_cast<SignalId>(signal);
    intern(names.signals,
           id == Names::kEmbeddings ? std::string(kEmbeddings) : fmt::format("llm.{}", signal), id);
  }
}

walk::Program compile_language_model() {
  walk::Names names;
  intern_language_model(names);
  return walk::compile(language_model_definition(), std::move(names));
}

}  // namespace rigel
