#include "engine/resources/stop_table.h"

#include "tensor/copy.h"
#include "tensor/stream.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace rigel {

using kernels::StopRow;

StopTable::StopTable(ResourceKey key, Device& device, std::int32_t num_rows,
                     std::span<const std::int32_t> eos_ids, ResourceKey sampler)
    : Resource(key),
      sampler_(sampler),
      end_ids_(eos_ids.begin(), eos_ids.end()),
      eos_ids_(device, Dtype::kI32, {static_cast<std::int64_t>(eos_ids.size())}),
      table_(device, Dtype::kI32, {num_rows, kernels::kStopRowWords}),
      rows_(static_cast<std::size_t>(num_rows)) {
  std::ranges::sort(end_ids_);
  new_rows_.reserve(rows_.size());
  planned_rows_.reserve(rows_.size());
  const Stream stream(device);
  copy(stream, eos_ids_.view(Dtype::kI32, {static_cast<std::int64_t>(end_ids_.size())}),
       const_host_view(std::span<const std::int32_t>(end_ids_)));
  stream.synchronize();
}

void StopTable::ingest_request(const RequestInfo& info) {
  Row& row = rows_.at(static_cast<std::size_t>(info.handle.row));
  if (row.owner == info.handle) {
    return;
  }
  row.owner = info.handle;
  renew(row, info);
}

void StopTable::renew(Row& row, const RequestInfo& info) {
  row.value = row_of(info);
  if (!std::exchange(row.is_new, true)) {
    new_rows_.push_back(info.handle.row);
  }
}

void StopTable::truncate_request(const SubmoduleStep& /*step*/, const RequestInfo& accepted,
                                 Epoch /*last_touch*/) {
  renew(rows_.at(static_cast<std::size_t>(accepted.handle.row)), accepted);
}

void StopTable::remove_request(RequestHandle handle, Epoch /*last_touch*/) {
  Row& row = rows_.at(static_cast<std::size_t>(handle.row));
  row.owner = {};
  if (std::exchange(row.is_new, false)) {
    std::erase(new_rows_, handle.row);
  }
}

bool StopTable::is_new(RequestHandle handle) const {
  return !handle.is_padding() && rows_[static_cast<std::size_t>(handle.row)].is_new;
}

StopRow StopTable::row_of(const RequestInfo& info) const {
  std::vector<std::int32_t> ids = info.sampling.stop_token_ids;
  std::ranges::sort(ids);
  const bool ends_at_eos = std::ranges::includes(ids, end_ids_);
  if (ends_at_eos) {
    std::vector<std::int32_t> own;
    std::ranges::set_difference(ids, end_ids_, std::back_inserter(own));
    ids = std::move(own);
  }
  StopRow row{.generation = info.handle.generation,
              .options = ends_at_eos ? 0 : kernels::kIgnoreEos,
              .min_tokens = info.sampling.min_tokens,
              .max_tokens = info.max_tokens,
              .max_length = info.max_length,
              .num_prompt_tokens = info.num_prompt_tokens,
              .num_generated = info.num_generated,
              .stop_ids = {}};
  kernels::set_stop_ids(row, ids);
  return row;
}

bool StopTable::fits_capture(const SubmoduleStep& /*step*/, const StepContext& context) const {
  return new_rows_.empty() || is_packed(context.batch.slot_lease) ||
         std::ranges::none_of(context.batch.handles,
                              [this](RequestHandle handle) { return is_new(handle); });
}

/// A step that fails before its commit leaves the rows new: the next one brings them again.
void StopTable::plan(const SubmoduleStep& /*step*/, StepContext& context) {
  planned_rows_.clear();
  const BatchColumns& batch = context.batch;
  std::int64_t num_places = 0;
  if (is_packed(batch.slot_lease)) {
    // Its own lanes' only: others may be more than it has places.
    for (const RequestHandle handle : batch.handles) {
      if (is_new(handle)) {
        planned_rows_.push_back(handle.row);
      }
    }
    num_places = std::ssize(batch.handles);
  } else if (batch.slot_lease == nullptr) {
    planned_rows_ = new_rows_;
    num_places = std::ssize(planned_rows_);
  }
  plan_rows(num_places, context);
}

void StopTable::plan_rows(std::int64_t num_places, StepContext& context) {
  StopPlan plan;
  if (num_places > 0) {
    const auto rows = context.staging->column<std::int32_t>(num_places);
    const auto values = context.staging->column<std::int32_t>(num_places * kernels::kStopRowWords);
    std::ranges::fill(rows.host, -1);
    std::int32_t* value = values.host.data();
    for (std::size_t index = 0; index < planned_rows_.size(); ++index) {
      rows.host[index] = planned_rows_[index];
      std::memcpy(value, &rows_[static_cast<std::size_t>(planned_rows_[index])].value,
                  sizeof(StopRow));
      value += kernels::kStopRowWords;
    }
    plan.rows = rows.device;
    plan.values = values.device.reshape({num_places, std::int64_t{kernels::kStopRowWords}});
  }
  context.set_plan(key(), plan);
}

void StopTable::commit(const SubmoduleStep& /*step*/, const StepContext& /*context*/) {
  for (const std::int32_t row : planned_rows_) {
    rows_[static_cast<std::size_t>(row)].is_new = false;
  }
  if (!planned_rows_.empty()) {
    std::erase_if(new_rows_, [this](std::int32_t row) {
      return !rows_[static_cast<std::size_t>(row)].is_new;
    });
  }
}

void StopTable::enqueue_new_rows(const StepContext& context) const {
  const auto& plan = context.plan<StopPlan>(key());
  if (plan.rows.defined()) {
    kernels::set_stop_rows(context.stream(), table(), plan.rows, plan.values);
  }
}

kernels::StopTest StopTable::test(const StepContext& context, const ConstDeviceView& tokens) const {
  const auto num_ids = static_cast<std::int64_t>(end_ids_.size());
  return {.stop_rows = table(),
          .eos_ids = eos_ids_.view(Dtype::kI32, {num_ids}),
          .rows = context.plan<SamplerPlan>(sampler_).rows,
          .tokens = tokens};
}

DeviceView StopTable::table() const {
  return table_.view(Dtype::kI32,
                     {static_cast<std::int64_t>(rows_.size()), kernels::kStopRowWords});
}

}  // namespace rigel
