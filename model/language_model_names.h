#pragma once

#include "engine/contract/capture_key.h"
#include "engine/contract/ids.h"

namespace rigel {

/// The walks, loop and signals of a language model: a prompt is prefilled, then one token a step is decoded in a loop. Both
/// run together in a mixed step, decode lanes first. A composite model may have more walks that prefill: a prompt then comes in
/// several parts, the last of which is that of walk `kPrefill`, and only that one samples.
struct LanguageModelNames {
  static constexpr NodeId kNode{0};
  static constexpr const char* kNodeName = "LLM";  // in walks, metrics and messages
  static constexpr PartitionId kPartition{0};

  static constexpr WalkId kPrefill{0};
  static constexpr WalkId kDecode{1};
  static constexpr WalkId kMixed{2};

  static constexpr const char* kBlocks =
      "blocks";  // the region of everything between two attentions

  static constexpr LoopId kDecodeLoop{0};

  /// The captures of a walk: of batches in which nobody asks for log-probabilities, and of the others.
  static constexpr CgKey kPlain{};
  static constexpr CgKey kWithLogprobs = CgKey::interned(1);

  // Inputs of a prefill: one of them.
  static constexpr SignalId kTextInputs{0};  // (n) i32: the prompt's token ids

  static constexpr SignalId kEmbeddings{
      14};  // (n, C) f32, on the device: instead of ids, the rows that the residual stream starts with

  // Row outputs: row i belongs to the i-th lane that sampled.
  static constexpr SignalId kNewToken{1};       // (S) i32; -1: no finite logits
  static constexpr SignalId kChosenLogprob{2};  // (S) f32, where anybody asked
  static constexpr SignalId kTopIds{3};         // (S, K) i32
  static constexpr SignalId kTopLogprobs{4};    // (S, K) f32

  static constexpr SignalId kStopRecord{
      13};  // (S, 4) i64, kernels::StepRecord each: the device's stop test of the lane

  // Outputs of scored prompts: row i belongs to the i-th scored token of the step.
  static constexpr SignalId kScoreLogprob{
      5};  // (N) f32: of the token that follows; nothing for a prompt's last token
  static constexpr SignalId kScoreTopIds{6};       // (N, K) i32
  static constexpr SignalId kScoreTopLogprobs{7};  // (N, K) f32
  static constexpr SignalId kLastLogits{
      8};  // (n, V) f32: of scored prompts that end in this step, in lane order

  // Columns that the model stages for its own forward.
  static constexpr SignalId kStagedIds{9};
  static constexpr SignalId kScoreTokens{10};
  static constexpr SignalId kScoreTargets{11};
  static constexpr SignalId kScoreTopCounts{12};

  static constexpr int kNumSignals = 15;
};

}  // namespace rigel
