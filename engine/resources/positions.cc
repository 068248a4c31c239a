#include "engine/resources/positions.h"

#include <ranges>

namespace rigel {

void Positions::ingest_request(const RequestInfo& info) {
  RequestHandle& owner = owners_.at(static_cast<std::size_t>(info.handle.row));
  if (owner != info.handle) {
    owner = info.handle;
    restart_request(info.handle, 0);
  }
}

void Positions::remove_request(RequestHandle handle, Epoch /*last_touch*/) {
  owners_.at(static_cast<std::size_t>(handle.row)) = {};
}

void Positions::restart_request(RequestHandle handle, Epoch /*last_touch*/) {
  for (auto index = static_cast<std::size_t>(handle.row); index < next_.size();
       index += owners_.size()) {
    next_[index] = 0;
  }
}

void Positions::truncate_to(RequestHandle handle, LabelId label, std::int32_t position) {
  RIGEL_CHECK(position >= 0 && position <= next(handle, label),
              "position {} of row {} is behind its next, {}", position, handle.row,
              next(handle, label));
  next_[index_of(handle, label)] = position;
}

void Positions::set(std::size_t index, std::int32_t next) {
  if (is_staging_) {
    undo_.push_back({index, next_[index]});
  }
  next_[index] = next;
}

void Positions::fork(std::span<const Fork> forks, std::span<const Segment> segments) {
  for (const Fork& fork : forks) {
    for (const Segment& segment : segments) {
      if (!segment.handle
               .is_padding()) {  // a request that comes twice is forked twice, to the same
        set(index_of(segment.handle, fork.destination), next(segment.handle, fork.source));
      }
    }
  }
}

void Positions::follow_cache(const SubmoduleStep& step, const StepContext& context) {
  const ResourceStep* const cache = kv_cache_ ? step.find(*kv_cache_) : nullptr;
  if (cache == nullptr) {
    return;
  }
  for (const StreamStart& start : context.plan<KvPlan>(*kv_cache_).starts) {
    set(index_of(start.handle, start.label), start.length);
  }
  fork(std::get<KvStep>(*cache).pre_forks, step.segments_of(*kv_cache_));
}

const PositionStep* Positions::own_step(const SubmoduleStep& step) const {
  const ResourceStep* const declared = step.find(key());
  return declared == nullptr ? nullptr : &std::get<PositionStep>(*declared);
}

/// What a committed step adds to the counter of its segment `index`.
std::int32_t Positions::advance_of(const PositionStep* own, const Segment& segment,
                                   std::size_t index) {
  if (own != nullptr && !own->advance.empty()) {
    return own->advance[index];
  }
  const bool shares_position = own != nullptr && own->scheme == PositionStep::Scheme::kBlock;
  return shares_position && segment.span > 0 ? 1 : segment.span;
}

void Positions::plan(const SubmoduleStep& step, StepContext& context) {
  follow_cache(step, context);
  const std::span<const Segment> segments = step.segments_of(key());
  const PositionStep* const own = own_step(step);
  const bool shares_position = own != nullptr && own->scheme == PositionStep::Scheme::kBlock;
  std::int64_t num_tokens = 0;
  for (const Segment& segment : segments) {
    num_tokens += segment.span;
  }
  RIGEL_CHECK(segments.data() != step.segments.data() || num_tokens == context.num_tokens,
              "the segments cover {} tokens of {}", num_tokens, context.num_tokens);
  const bool has_ids = own != nullptr && !own->pos_ids.empty();
  RIGEL_CHECK(!has_ids || own->pos_ids.size() == static_cast<std::size_t>(num_tokens),
              "pos_ids has {} positions for {} tokens", has_ids ? own->pos_ids.size() : 0,
              num_tokens);
  const auto positions = context.staging->column<std::int32_t>(num_tokens);
  const auto rows = context.staging->column<std::int32_t>(num_tokens);
  // Copies: what a sweep over the lanes reads of its own is then in registers.
  const std::span<const std::int32_t> next = next_;
  const std::int32_t num_rows = num_rows_;
  const auto next_of = [=](const Segment& segment) {
    if (segment.handle.is_padding()) {
      return -1;
    }
    const std::size_t index = index_of(segment.handle, segment.label, num_rows);
    RIGEL_CHECK(index < next.size(), "label {} of row {} has no position",
                static_cast<int>(segment.label), segment.handle.row);
    return next[index];
  };
  std::size_t token = 0;
  for (; token < segments.size() && segments[token].span == 1 && !has_ids; ++token) {
    positions.host[token] = next_of(segments[token]);  // of a decode lane
    rows.host[token] = std::max(segments[token].handle.row, -1);
  }
  for (const Segment& segment : segments.subspan(token)) {
    const bool padding = segment.handle.is_padding();
    const std::int32_t first = next_of(segment);
    for (std::int32_t offset = 0; offset < segment.span; ++offset, ++token) {
      const std::int32_t position =
          has_ids ? own->pos_ids[token] : first + (shares_position ? 0 : offset);
      positions.host[token] = padding ? -1 : position;
      rows.host[token] = padding ? -1 : segment.handle.row;
    }
  }
  context.set_plan(key(), PositionPlan{positions.device, rows.device});
}

void Positions::commit(const SubmoduleStep& step, const StepContext& /*context*/) {
  const std::span<const Segment> segments = step.segments_of(key());
  const PositionStep* const own = own_step(step);
  const bool has_advance = own != nullptr && !own->advance.empty();
  RIGEL_CHECK(!has_advance || own->advance.size() == segments.size(),
              "advance has {} numbers for {} segments", has_advance ? own->advance.size() : 0,
              segments.size());
  const bool adds_span =
      !has_advance && (own == nullptr || own->scheme == PositionStep::Scheme::kSequential);
  const std::span<std::int32_t> next = next_;
  const std::int32_t num_rows = num_rows_;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    const Segment& segment = segments[index];
    if (!segment.handle.is_padding()) {
      next[index_of(segment.handle, segment.label, num_rows)] +=
          adds_span ? segment.span : advance_of(own, segment, index);
    }
  }
  if (const ResourceStep* const cache = kv_cache_ ? step.find(*kv_cache_) : nullptr) {
    fork(std::get<KvStep>(*cache).post_forks, step.segments_of(*kv_cache_));
  }
}

void Positions::truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                                 Epoch /*last_touch*/) {
  const std::span<const Segment> segments = step.segments_of(key());
  const PositionStep* const own = own_step(step);
  for (std::size_t index = 0; index < segments.size(); ++index) {
    if (segments[index].handle == accepted.handle) {
      next_[index_of(accepted.handle, segments[index].label)] -=
          advance_of(own, segments[index], index);
    }
  }
  if (const ResourceStep* const cache = kv_cache_ ? step.find(*kv_cache_) : nullptr) {
    for (const Fork& fork : std::get<KvStep>(*cache).post_forks) {
      next_[index_of(accepted.handle, fork.destination)] = next(accepted.handle, fork.source);
    }
  }
}

void Positions::promote(Epoch /*epoch*/) {
  is_staging_ = false;
  undo_.clear();
}

void Positions::clear_preplan() {
  is_staging_ = false;
  for (const Undo& undo : std::views::reverse(undo_)) {
    next_[undo.index] = undo.next;
  }
  undo_.clear();
}

}  // namespace rigel
