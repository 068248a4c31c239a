#pragma once

#include "engine/contract/submodule.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// A batch filled up to the lanes of a captured step: the real lanes, then padding lanes with negative rows, which bring the
/// row of the capture. Reused. Thread: worker.
class PaddedBatch {
 public:
  PaddedBatch();

  /// The columns, valid until the next call and as long as those of `batch`. Requires num_lanes >= lanes of `batch`.
  [[nodiscard]] BatchColumns pad(const BatchColumns& batch, std::int32_t num_lanes,
                                 const NodeInputs& padding_row);

 private:
  static void copy_metadata(const InputMetadata& from, InputMetadata& to);

  RequestInfo padding_info_;
  InputMetadata padding_metadata_;
  std::vector<RequestHandle> handles_;
  std::vector<const RequestInfo*> infos_;
  std::vector<InputMetadata> metadata_;
  std::vector<const NodeInputs*> inputs_;
};

/// Tokens of the batch's step: those of its lanes, and in a packed capture all that the capture has.
[[nodiscard]] std::int64_t num_step_tokens(const BatchColumns& batch);

/// Gives the tokens of a packed capture that no lane has to a segment of nobody's, which stands last and may be empty: columns
/// by token and by segment have one size in all its steps. Nothing for other steps. Throws CheckError where a resource has
/// segments of its own.
void pad_segments(const BatchColumns& batch, SubmoduleStep& step);

}  // namespace rigel
